/* Token and position embeddings.
 *
 * Backward must add the rows of a token in order, without atomics and without a
 * sort: the block of a token's first place finds the others by a look at all
 * tokens after it, the blocks of the others find an earlier place and end. That
 * reads tokens n / 2 times n at most, from the L2 cache: 8192 tokens are 0.13
 * GB, 65536 are 8.6 GB, per slab of columns. */
#include "kernels/cuda/cuda_held.h"
#include "kernels/cuda/cuda_mma.h"
#include "kernels/cuda/cuda_reduce.h"

/* Rows of a token that a thread loads before it adds them: a frequent one has
 * thousands, which one block adds, each as slow as memory answers. */
#define ROWS 4

template <class T>
static __global__ void embedding_forward(int64_t seq, int64_t d,
                                         const int32_t *tokens, const T *wte,
                                         const T *wpe, T *out)
{
    const int lanes = cuda_lanes<T>::count;
    const T *token = wte + tokens[blockIdx.x] * d;
    const T *position = wpe + (wpe == NULL ? 0 : blockIdx.x % seq * d);
    struct cuda_held<T, 1> held_token, held_position;
    float x[lanes], y[lanes] = { 0 };
    out += blockIdx.x * d;
    CUDA_FOR_COLUMNS(at, d, lanes)
    {
        cuda_hold_one(token + at, d - at, &held_token);
        if (wpe != NULL)
            cuda_hold_one(position + at, d - at, &held_position);
        cuda_held_values(held_token, 0, x);
        if (wpe != NULL)
            cuda_held_values(held_position, 0, y);
        for (int i = 0; i < lanes; i++)
            x[i] += y[i];
        cuda_store<lanes>(out + at, d - at, x);
    }
}

enum err CUDA_SYMBOL(embedding_forward) KERNEL_LIKE(embedding_forward)
{
    assert(seq > 0 && d > 0);
    if (n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "embedding_forward", [&](auto element) {
        typedef decltype(element) T;
        unsigned threads = cuda_threads(cuda_parts(d, cuda_lanes<T>::count));
        CUDA_LAUNCH(embedding_forward<T>, cuda_blocks(n), threads, 0,
                    cuda_stream(ctx), seq, d, tokens, (const T *)wte,
                    (const T *)wpe, (T *)out);
        return cuda_launched("embedding_forward");
    });
}

/* True in all threads if one of tokens[0, n) is `token`. */
CUDA_DEVICE bool occurs(int64_t n, const int32_t *tokens, int32_t token)
{
    bool found = false;
    /* backwards: a frequent token is found soon */
    for (int64_t end = n; end > 0 && !found; end -= blockDim.x) {
        int64_t i = end - 1 - threadIdx.x;
        int hit = i >= 0 && tokens[i] == token;
        found = cuda_team_reduce((int)(blockDim.x / CUDA_WARP), hit,
                                 cuda_most()) != 0;
    }
    return found;
}

/* votes[w] becomes the lanes of warp w that have a hit. */
CUDA_DEVICE void block_ballot(int hit, unsigned *votes)
{
    unsigned vote = __ballot_sync(CUDA_ALL_LANES, hit);
    if (threadIdx.x % CUDA_WARP == 0)
        votes[threadIdx.x / CUDA_WARP] = vote;
    __syncthreads();
}

/* The hits of a window of blockDim.x tokens, one after the other. */
struct hits {
    const unsigned *votes; /* of each warp */
    unsigned warp, left;   /* the next ones are among these */
};

CUDA_DEVICE struct hits hits_of(const unsigned *votes)
{
    struct hits hits = { votes, 0, votes[0] };
    return hits;
}

/* The next one's place in the window, or -1. */
CUDA_DEVICE int hits_next(struct hits *hits)
{
    while (hits->left == 0) {
        if (++hits->warp >= blockDim.x / CUDA_WARP)
            return -1;
        hits->left = hits->votes[hits->warp];
    }
    int lane = __ffs((int)hits->left) - 1;
    hits->left &= hits->left - 1;
    return (int)hits->warp * CUDA_WARP + lane;
}

/* Adds the rows of the window's hits to sum, in order; `whole` vectors are
 * loaded as such, several before the first is looked at. */
template <class T>
CUDA_DEVICE void add_hits(struct hits hits, bool whole, int64_t d, int64_t left,
                          const T *window, float *sum)
{
    const int lanes = cuda_lanes<T>::count;
    typedef typename cuda_pieces<lanes, T>::piece piece;
    int count = ROWS;
    while (count == ROWS) {
        piece rows[ROWS];
        count = 0;
        CUDA_UNROLL
        for (int r = 0; r < ROWS; r++) {
            int at = hits_next(&hits);
            if (at < 0)
                break;
            const T *row = window + at * d;
            count++;
            if (whole)
                rows[r] = *(const piece *)row;
            else
                for (int k = 0; k < lanes; k++)
                    rows[r].at[k] = row[k < left ? k : 0];
        }
        CUDA_UNROLL
        for (int r = 0; r < ROWS; r++)
            for (int k = 0; k < lanes && r < count; k++)
                sum[k] += cuda_value(rows[r].at[k]);
    }
}

template <class T>
static __global__ void CUDA_RESIDENT(CUDA_THREADS, 4)
    tokens_backward(int64_t n, int64_t d, const int32_t *tokens, const T *dout,
                    float *dwte)
{
    const int lanes = cuda_lanes<T>::count;
    __shared__ unsigned votes[CUDA_THREADS / CUDA_WARP];
    const int64_t first = blockIdx.x;
    const int32_t token = tokens[first];
    int64_t at = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * lanes;
    float sum[lanes];
    if (occurs(first, tokens, token))
        return;
    bool whole = at + lanes <= d && d % lanes == 0 &&
                 (uintptr_t)dout % CUDA_VECTOR_BYTES == 0;
    cuda_load<lanes>(dwte + token * d + at, d - at, 0, sum);
    for (int64_t i = first; i < n; i += blockDim.x) {
        int64_t mine = i + threadIdx.x;
        block_ballot(mine < n && tokens[mine] == token, votes);
        if (at < d)
            add_hits(hits_of(votes), whole, d, d - at, dout + i * d + at, sum);
        __syncthreads();
    }
    cuda_store<lanes>(dwte + token * d + at, d - at, sum);
}

/* Block x has position x of all sequences. */
template <class T>
static __global__ void positions_backward(int64_t n, int64_t seq, int64_t d,
                                          const T *dout, float *dwpe)
{
    const int lanes = cuda_lanes<T>::count;
    int64_t at = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * lanes;
    float sum[lanes], x[lanes];
    dwpe += blockIdx.x * d + at;
    cuda_load<lanes>(dwpe, d - at, 0, sum);
    for (int64_t i = blockIdx.x; i < n; i += seq) {
        cuda_load<lanes>(dout + i * d + at, d - at, 0, x);
        for (int k = 0; k < lanes; k++)
            sum[k] += x[k];
    }
    cuda_store<lanes>(dwpe, d - at, sum);
}

enum err CUDA_SYMBOL(embedding_backward) KERNEL_LIKE(embedding_backward)
{
    assert(seq > 0 && d > 0);
    if (n == 0)
        return ERR_OK;
    return cuda_by_dtype(dtype, "embedding_backward", [&](auto element) {
        typedef decltype(element) T;
        int64_t vectors = cuda_parts(d, cuda_lanes<T>::count);
        /* a full block even where columns are few: it searches faster */
        unsigned threads = CUDA_THREADS;
        unsigned slabs = cuda_blocks(cuda_parts(vectors, threads));
        dim3 grid(cuda_blocks(n), slabs);
        CUDA_LAUNCH(tokens_backward<T>, grid, threads, 0, cuda_stream(ctx), n,
                    d, tokens, (const T *)dout, (float *)dwte);
        if (dwpe != NULL) {
            dim3 positions(cuda_blocks(cuda_min(n, seq)), slabs);
            CUDA_LAUNCH(positions_backward<T>, positions, threads, 0,
                        cuda_stream(ctx), n, seq, d, (const T *)dout,
                        (float *)dwpe);
        }
        return cuda_launched("embedding_backward");
    });
}
