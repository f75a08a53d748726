/* aligned_alloc() and free() over memory that a GPU reaches, too. Every piece
 * is an allocation of its own, so that compute-sanitizer knows its end. */
#include "tests/gpu/managed.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define PIECES_MAX 4096

struct piece {
    char *begin;
    size_t bytes;
};

static struct piece pieces[PIECES_MAX];
static bool started;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* What the linker's --wrap makes of the two names. */
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void __wrap_free(void *memory);

void managed_memory_start(void)
{
    started = true;
}

void *managed_piece(const void *address, size_t *bytes)
{
    const char *a = address;
    void *begin = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < PIECES_MAX && begin == NULL; i++)
        if (pieces[i].begin != NULL && a >= pieces[i].begin &&
            a <= pieces[i].begin + pieces[i].bytes) {
            begin = pieces[i].begin;
            *bytes = pieces[i].bytes;
        }
    pthread_mutex_unlock(&lock);
    return begin;
}

bool managed_holds(const void *address)
{
    size_t bytes;
    return managed_piece(address, &bytes) != NULL;
}

static bool remember(void *begin, size_t bytes)
{
    bool done = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < PIECES_MAX && !done; i++)
        if (pieces[i].begin == NULL) {
            pieces[i] = (struct piece){ .begin = begin, .bytes = bytes };
            done = true;
        }
    pthread_mutex_unlock(&lock);
    return done;
}

static bool forget(const void *begin)
{
    bool done = false;
    if ((uintptr_t)begin % 256 != 0)
        return false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < PIECES_MAX && !done; i++)
        if (pieces[i].begin == begin) {
            pieces[i] = (struct piece){ 0 };
            done = true;
        }
    pthread_mutex_unlock(&lock);
    return done;
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    (void)managed_table(); /* the first piece starts the GPU */
    if (!started || alignment > 256)
        return __real_aligned_alloc(alignment, bytes);
    void *memory = managed_source.allocate(bytes == 0 ? 1 : bytes);
    if (memory != NULL && !remember(memory, bytes)) {
        managed_source.release(memory);
        memory = NULL;
    }
    return memory;
}

/* The lock is not held where CUDA is called: it frees, too. */
void __wrap_free(void *memory)
{
    if (memory != NULL && forget(memory))
        managed_source.release(memory);
    else
        __real_free(memory);
}
