/* Data races of CUDA kernels, found by what is ordered and not by what happens:
 * whatever order the emulator takes, two threads of a launch that touch the
 * same byte, one of them to write, must have a barrier between them. Kernels
 * that are compiled with -fsanitize=thread call __tsan_read4() and its like at
 * every access; cuda_race.cc defines these in ThreadSanitizer's place, knows
 * who wrote and who read each byte last, and ends the program with a message
 * when
 *   - threads of a block touch a byte with no __syncthreads in between, or with
 *     neither that nor a __syncwarp if they are of one warp. Shuffles, votes
 *     and tensor cores make lanes meet but do not order memory, so they count
 *     for nothing,
 *   - blocks of one launch touch a byte of global memory,
 *   - anybody touches what cp.async copies to before its thread has waited,
 *   - a block reads shared memory that it has not written.
 * A race is found if the kernel comes to both accesses; no right kernel is
 * reported. Atomics are not looked at.
 *
 * The emulator says by these calls what its kernels do; in programs without
 * cuda_race.o they do nothing. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What is shared by the threads of a block: static arrays and dynamic memory.
 */
struct cuda_race_shared {
    uintptr_t first, end;
};

/* A launch begins, with all before it done; with NULL it ends. */
void cuda_race_launch(const struct cuda_race_shared shared[2]);

/* A block begins, and its shared memory holds nothing. */
void cuda_race_block();

/* What follows is by this thread of the block, its stack its own. */
void cuda_race_thread(unsigned thread, const void *stack, size_t bytes);

/* All threads of the block, or of the warp, have come to a barrier. */
void cuda_race_barrier();
void cuda_race_warp_barrier(unsigned warp);

/* The thread begins to copy, or has waited until it is done. `where` is the
 * code. */
void cuda_race_fetch(bool done, const void *from, void *to, size_t bytes,
                     const void *where);

/* The thread stores, in code that the compiler does not watch. */
void cuda_race_store(const void *to, size_t bytes, const void *where);
