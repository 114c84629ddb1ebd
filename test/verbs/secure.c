/* Opens the device, and says whether the loader takes this program for one with other rights than its caller's. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <sys/auxv.h>

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int opened = ibv_open_device(list[0]) != NULL;

	printf("AT_SECURE %lu, opened %d\n", getauxval(AT_SECURE), opened);
	return 0;
}
