/* Loaded into an engine's process (LD_PRELOAD), so that what it opens for every network it opens for this machine alone:
   Beam's job server and Flink's mini cluster have no setting for most of their ports. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

int bind(int fd, const struct sockaddr *address, socklen_t length) {
  static int (*next)(int, const struct sockaddr *, socklen_t);
  if (!next) *(void **)&next = dlsym(RTLD_NEXT, "bind");
  struct sockaddr_storage here;
  if (length <= sizeof here) {
    memcpy(&here, address, length);
    if (address->sa_family == AF_INET && ((struct sockaddr_in *)&here)->sin_addr.s_addr == htonl(INADDR_ANY)) {
      ((struct sockaddr_in *)&here)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address = (struct sockaddr *)&here;
    } else if (address->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)&here)->sin6_addr)) {
      inet_pton(AF_INET6, "::ffff:127.0.0.1", &((struct sockaddr_in6 *)&here)->sin6_addr);
      address = (struct sockaddr *)&here;
    }
  }
  return next(fd, address, length);
}
