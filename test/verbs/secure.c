/*
 * Opens the device, and says whether the loader takes this program for one with other rights than
 * its caller's, and whether the environment is what it was. "clear", or the name of a variable:
 * taken out of the environment before.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define VARIABLES_MAX 256

static char **where, *there[VARIABLES_MAX], *text[VARIABLES_MAX];

static void keep(void)
{
	where = environ;
	for (int i = 0; environ && environ[i]; i++) {
		if (i == VARIABLES_MAX - 1)
			exit(2);
		there[i] = environ[i];
		text[i] = strdup(environ[i]);
	}
}

static int kept(void)
{
	int i = 0;

	if (environ != where)
		return 0;
	for (; environ && environ[i]; i++)
		if (environ[i] != there[i] || strcmp(environ[i], text[i]))
			return 0;
	return !there[i];
}

int main(int argc, char **argv)
{
	struct ibv_device **list;
	int opened;

	if (argc > 1 && !strcmp(argv[1], "clear"))
		clearenv();
	else if (argc > 1)
		unsetenv(argv[1]);
	keep();
	list = ibv_get_device_list(NULL);
	opened = ibv_open_device(list[0]) != NULL;
	printf("AT_SECURE %lu, opened %d, ", getauxval(AT_SECURE), opened);
	printf("environment kept %d\n", kept());
	return 0;
}
