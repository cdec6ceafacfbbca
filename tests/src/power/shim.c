// Writes down everything that a process asks of the files below one directory, in order, for src/power.rs.
//
// Preloaded into the real daemon: SQLite is linked into it, and calls libc for its files. Each record is appended to the
// journal after the call has succeeded and before it returns, so that whatever the process says later, its record is there.
// Deliberately absent: mmap (SQLite maps only the index of the WAL, which is made anew after a power cut), and calls that
// nothing here uses; the test compares what the journal adds up to with the real files, and so would notice one.
//
//   LINGER_POWER_DIR      the directory, absolute, without a slash at the end
//   LINGER_POWER_JOURNAL  the journal
//   LINGER_POWER_IGNORE   `sync`: syncs are not written down, as if the disk lied; a planted fault
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) (*(__typeof__(&name))real(#name))

struct head {
  uint64_t offset, length;
  uint32_t path;
  uint8_t kind;
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *dir, *ignore;
static int journal = -1;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("LINGER_POWER_JOURNAL");
  dir = getenv("LINGER_POWER_DIR");
  ignore = getenv("LINGER_POWER_IGNORE");
  if (dir && path) journal = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

// Whether the path lies in the directory, or is it.
static int ours(const char *path) {
  size_t n = dir ? strlen(dir) : 0;
  return journal >= 0 && strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == 0);
}

// The path of an open file as it is called now; whether it is ours. A file without a name any more is nobody's.
static int path_of(int fd, char *path) {
  char link[40];
  if (journal < 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, 4095);
  if (n <= 0) return 0;
  path[n] = 0;
  return ours(path) && !strstr(path, " (deleted)");
}

// The absolute path of a name that is relative to an open directory; whether it is ours.
static int path_at(int at, const char *name, char *path) {
  if (name[0] == '/') return snprintf(path, 4096, "%s", name) < 4096 && ours(path);
  if (at == AT_FDCWD || !path_of(at, path)) return 0;
  size_t n = strlen(path);
  return snprintf(path + n, 4096 - n, "/%s", name) < (int)(4096 - n);
}

static void record(char kind, const char *path, uint64_t offset, const void *bytes, uint64_t length) {
  int error = errno;
  struct head head = {offset, bytes ? length : 0, strlen(path), kind};
  struct iovec parts[] = {{&head, sizeof head}, {(void *)path, head.path}, {(void *)bytes, head.length}};
  // One call, so that records of two processes do not mix.
  ssize_t wanted = sizeof head + head.path + head.length;
  if (REAL(writev)(journal, parts, 3) != wanted) abort();
  errno = error;
}

static ssize_t wrote(const char *path, uint64_t offset, const void *bytes, ssize_t n) {
  if (n > 0) record('w', path, offset, bytes, n);
  return n;
}

// Where the next write without an offset goes.
static uint64_t position(int fd) {
  struct stat stat;
  if (fcntl(fd, F_GETFL) & O_APPEND) return fstat(fd, &stat) ? 0 : stat.st_size;
  return lseek(fd, 0, SEEK_CUR);
}

#define LOCKED(type, call) pthread_mutex_lock(&lock); type result = call; pthread_mutex_unlock(&lock); return result;

static ssize_t do_write(int fd, const char *path, const void *bytes, size_t n) {
  uint64_t at = position(fd);
  return wrote(path, at, bytes, REAL(write)(fd, bytes, n));
}

ssize_t write(int fd, const void *bytes, size_t n) {
  char path[4096];
  if (!path_of(fd, path)) return REAL(write)(fd, bytes, n);
  LOCKED(ssize_t, do_write(fd, path, bytes, n))
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  char path[4096];
  if (!path_of(fd, path)) return REAL(writev)(fd, parts, count);
  // A short write is allowed: the caller comes back with the rest.
  for (int i = 0; i < count; i++)
    if (parts[i].iov_len) return write(fd, parts[i].iov_base, parts[i].iov_len);
  return 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off64_t at) {
  char path[4096];
  if (!path_of(fd, path)) return REAL(pwrite64)(fd, bytes, n, at);
  LOCKED(ssize_t, wrote(path, at, bytes, REAL(pwrite64)(fd, bytes, n, at)))
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return pwrite64(fd, bytes, n, at); }

static int done(int result, char kind, const char *path, uint64_t offset, const char *other) {
  if (result == 0) record(kind, path, offset, other, other ? strlen(other) : 0);
  return result;
}

int ftruncate64(int fd, off64_t size) {
  char path[4096];
  if (!path_of(fd, path)) return REAL(ftruncate64)(fd, size);
  LOCKED(int, done(REAL(ftruncate64)(fd, size), 't', path, size, NULL))
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int synced(int result, const char *path) {
  if (ignore && !strcmp(ignore, "sync")) return result;
  return done(result, 's', path, 0, NULL);
}

int fsync(int fd) {
  char path[4096];
  if (!path_of(fd, path)) return REAL(fsync)(fd);
  LOCKED(int, synced(REAL(fsync)(fd), path))
}

int fdatasync(int fd) {
  char path[4096];
  if (!path_of(fd, path)) return REAL(fdatasync)(fd);
  LOCKED(int, synced(REAL(fdatasync)(fd), path))
}

static int opened(int at, const char *name, int flags, mode_t mode) {
  char path[4096];
  if (!path_at(at, name, path)) return REAL(openat64)(at, name, flags, mode);
  pthread_mutex_lock(&lock);
  int fresh = (flags & O_CREAT) && access(path, F_OK) != 0;
  int fd = REAL(openat64)(at, name, flags, mode);
  if (fd >= 0 && fresh) record('c', path, 0, NULL, 0);
  if (fd >= 0 && !fresh && (flags & O_TRUNC)) record('t', path, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return fd;
}

#define MODE                              \
  mode_t mode = 0;                        \
  if (flags & (O_CREAT | __O_TMPFILE)) {  \
    va_list list;                         \
    va_start(list, flags);                \
    mode = va_arg(list, mode_t);          \
    va_end(list);                         \
  }

int open(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return opened(AT_FDCWD, name, flags, mode); }
int openat(int at, const char *name, int flags, ...) { MODE return opened(at, name, flags, mode); }
int openat64(int at, const char *name, int flags, ...) { MODE return opened(at, name, flags, mode); }

int unlinkat(int at, const char *name, int flags) {
  char path[4096];
  if (!path_at(at, name, path)) return REAL(unlinkat)(at, name, flags);
  LOCKED(int, done(REAL(unlinkat)(at, name, flags), 'u', path, 0, NULL))
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdir(const char *name, mode_t mode) {
  if (!ours(name)) return REAL(mkdir)(name, mode);
  LOCKED(int, done(REAL(mkdir)(name, mode), 'd', name, 0, NULL))
}

int rename(const char *from, const char *to) {
  if (!ours(from) || !ours(to)) return REAL(rename)(from, to);
  LOCKED(int, done(REAL(rename)(from, to), 'r', from, 0, to))
}

// Whoever copies a file goes on with read and write when these cannot.
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned flags) {
  char path[4096];
  if (!path_of(to, path)) return REAL(copy_file_range)(from, from_at, to, to_at, n, flags);
  errno = ENOSYS;
  return -1;
}
