/* Objects by cookie. Events name objects by cookie, and may come when those are gone. */
#include "shim.h"

#define TABLE_MAX (1u << 18)

struct slot {
	void *object;
	uint32_t generation, next_free;
};

static struct rv_lock lock;
static struct slot *slots;
static uint32_t used, room, first_free = UINT32_MAX;

/* A cookie is slot and generation, and never 0. */
uint64_t rv_table_add(void *object)
{
	uint64_t cookie = 0;
	uint32_t i;

	rv_lock(&lock);
	if (first_free != UINT32_MAX) {
		i = first_free;
		first_free = slots[i].next_free;
	} else {
		if (used == room && room < TABLE_MAX) {
			struct slot *more = realloc(slots, (room ? room * 2 : 64) * sizeof *slots);

			if (more) {
				slots = more;
				room = room ? room * 2 : 64;
			}
		}
		if (used == room)
			goto out;
		i = used++;
		slots[i].generation = 0;
	}
	slots[i].object = object;
	cookie = (uint64_t)++slots[i].generation << 32 | i;
out:
	rv_unlock(&lock);
	return cookie;
}

void *rv_table_find(uint64_t cookie)
{
	uint32_t i = (uint32_t)cookie;
	void *object = NULL;

	rv_lock(&lock);
	if (i < used && slots[i].generation == cookie >> 32)
		object = slots[i].object;
	rv_unlock(&lock);
	return object;
}

void rv_table_remove(uint64_t cookie)
{
	uint32_t i = (uint32_t)cookie;

	rv_lock(&lock);
	if (i < used && slots[i].generation == cookie >> 32 && slots[i].object) {
		slots[i].object = NULL;
		slots[i].next_free = first_free;
		first_free = i;
	}
	rv_unlock(&lock);
}

void rv_lock_table(void)
{
	rv_lock(&lock);
}

void rv_unlock_table(void)
{
	rv_unlock(&lock);
}
