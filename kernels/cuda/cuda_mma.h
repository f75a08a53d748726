/* Products of small matrices by one warp, all of whose lanes must call. A lane
 * holds a matrix of 16 rows in parts of 8 columns, as tensor cores lay it out:
 * of part j x[j][0] and x[j][1] are columns 8 j + 2 (lane % 4) and the next one
 * of row lane / 4, x[j][2] and x[j][3] those of row lane / 4 + 8. In bf16 the
 * tensor cores multiply (mma.sync, from sm_80 on) and sum in fp32; in fp32 each
 * lane computes its elements, which then have the same places. Operands lie in
 * shared memory, rows CUDA_MMA_STRIDE elements apart: 16 bytes more than the
 * row needs, so that 8 rows are in 8 different banks. */
#pragma once

#include "kernels/cuda/cuda_vec.h"

/* Before a loop over what lies in registers: these have no addresses. And
 * before one whose addresses would take too many of them. */
#ifdef CUDA_EMULATED
#define CUDA_UNROLL
#define CUDA_ROLL
#else
#define CUDA_UNROLL _Pragma("unroll")
#define CUDA_ROLL _Pragma("unroll 1")
#endif

#define CUDA_MMA_ROWS 16
#define CUDA_MMA_STRIDE(T, width) ((width) + cuda_lanes<T>::count)

/* Two numbers as bf16, `low` at the lower address; nearest even. */
CUDA_DEVICE unsigned cuda_mma_pair(float low, float high)
{
#ifdef __CUDA_ARCH__
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    struct cuda_bf16 a, b;
    cuda_put(low, &a);
    cuda_put(high, &b);
    return a.bits | (unsigned)b.bits << 16;
#endif
}

/* Four matrices of 8 x 8 bf16; lane i gives the address of row i % 8 of matrix
 * i / 8, as what `offset`, the same for all lanes, is added to: an offset that
 * the compiler knows costs nothing. A lane gets row lane / 4, columns 2 (lane %
 * 4) and the next one, of each, or, with `turned`, that of the transposed
 * matrices. */
CUDA_DEVICE void cuda_mma_load(bool turned, const struct cuda_bf16 *row,
                               int offset, unsigned x[4])
{
#if defined(CUDA_EMULATED)
    cuda_emulator_ldmatrix(turned, row + offset, x);
#elif defined(__CUDA_ARCH__)
    unsigned at = (unsigned)__cvta_generic_to_shared(row) +
                  (unsigned)offset * (unsigned)sizeof(*row);
    if (turned)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                     "{%0,%1,%2,%3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
            : "r"(at)
            : "memory");
#endif
}

/* c[16,8] += a[16,16] b[16,8], one instruction. */
CUDA_DEVICE void cuda_mma(const unsigned a[4], const unsigned b[2], float c[4])
{
#if defined(CUDA_EMULATED)
    cuda_emulator_mma(a, b, c);
#elif defined(__CUDA_ARCH__)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* *to = *from, 16 bytes from global into shared memory, later: what a thread
 * has begun is there after its cuda_mma_fetched. Nothing waits for the bytes of
 * one copy before the next one begins. */
CUDA_DEVICE void cuda_mma_fetch(const void *from, void *to)
{
#if defined(CUDA_EMULATED)
    cuda_emulator_fetch(from, to);
#elif defined(__CUDA_ARCH__)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(from)
                 : "memory");
#endif
}

CUDA_DEVICE void cuda_mma_fetched(void)
{
#if defined(CUDA_EMULATED)
    cuda_emulator_fetched();
#elif defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* x, which the compiler computes with anew from here on: it would otherwise
 * compute before a loop what does not change in it, and hold it in registers.
 */
CUDA_DEVICE int cuda_anew(int x)
{
#ifndef CUDA_EMULATED
    asm volatile("" : "+r"(x));
#endif
    return x;
}

CUDA_DEVICE int cuda_lane(void)
{
    return (int)(threadIdx.x % CUDA_WARP);
}

/* ldmatrix and mma.sync are for a whole warp at once, whose lanes may have
 * parted before: where some copied the elements at an edge one by one. */
CUDA_DEVICE void cuda_mma_together(void)
{
    __syncwarp();
}

/* c[16 M,N] += a[16 M,K] b[N,K]^T; the parts of c are those of the first 16
 * rows, then those of the next. More rows read b once. */
template <int M, int N, int K>
CUDA_DEVICE void cuda_mma_rows(const struct cuda_bf16 *a,
                               const struct cuda_bf16 *b, float (*c)[4])
{
    const int stride = CUDA_MMA_STRIDE(struct cuda_bf16, K);
    int i = cuda_anew(cuda_lane());
    cuda_mma_together();
    a += i % 16 * stride + i / 16 * 8;
    b += (i / 16 * 8 + i % 8) * stride + i / 8 % 2 * 8;
    CUDA_UNROLL
    for (int k = 0; k < K; k += 16) {
        unsigned rows[M][4], columns[4];
        CUDA_UNROLL
        for (int m = 0; m < M; m++)
            cuda_mma_load(false, a, m * CUDA_MMA_ROWS * stride + k, rows[m]);
        CUDA_UNROLL
        for (int j = 0; j < N / 8; j += 2) {
            cuda_mma_load(false, b, j * 8 * stride + k, columns);
            CUDA_UNROLL
            for (int m = 0; m < M; m++) {
                cuda_mma(rows[m], columns, c[m * N / 8 + j]);
                cuda_mma(rows[m], columns + 2, c[m * N / 8 + j + 1]);
            }
        }
    }
}

/* In fp32 M is 1. */
template <int M, int N, int K>
CUDA_DEVICE void cuda_mma_rows(const float *a, const float *b, float (*c)[4])
{
    typedef struct cuda_piece<4, float> piece;
    const int stride = CUDA_MMA_STRIDE(float, K);
    static_assert(M == 1, "");
    a += cuda_lane() / 4 * stride;
    b += cuda_lane() % 4 * 2 * stride;
    for (int k = 0; k < K; k += 4) {
        piece a0 = *(const piece *)(a + k);
        piece a8 = *(const piece *)(a + 8 * stride + k);
        CUDA_UNROLL
        for (int j = 0; j < N / 8; j++) {
            piece b0 = *(const piece *)(b + j * 8 * stride + k);
            piece b1 = *(const piece *)(b + (j * 8 + 1) * stride + k);
            CUDA_UNROLL
            for (int i = 0; i < 4; i++) {
                c[j][0] = fmaf(a0.at[i], b0.at[i], c[j][0]);
                c[j][1] = fmaf(a0.at[i], b1.at[i], c[j][1]);
                c[j][2] = fmaf(a8.at[i], b0.at[i], c[j][2]);
                c[j][3] = fmaf(a8.at[i], b1.at[i], c[j][3]);
            }
        }
    }
}

/* Elements of shared memory that a warp must lend to cuda_mma_columns: a lane's
 * fp32 numbers must reach other lanes, its bf16 ones lie right already. */
template <class T, int K> struct cuda_mma_spare {
    static const int count =
        sizeof(T) == 2 ? 0 : CUDA_MMA_ROWS * CUDA_MMA_STRIDE(T, K);
};

/* c[16 M,N] += a[16 M,K] b[K,N], a from registers and, in bf16, rounded. */
template <int M, int N, int K>
CUDA_DEVICE void cuda_mma_columns(const float (*a)[4], struct cuda_bf16 *,
                                  const struct cuda_bf16 *b, float (*c)[4])
{
    const int stride = CUDA_MMA_STRIDE(struct cuda_bf16, N);
    int i = cuda_anew(cuda_lane());
    cuda_mma_together();
    b += i % 16 * stride + i / 16 * 8;
    CUDA_UNROLL
    for (int k = 0; k < K / 16; k++) {
        unsigned rows[M][4], columns[4];
        CUDA_UNROLL
        for (int m = 0; m < M; m++) {
            const float *low = a[m * K / 8 + 2 * k];
            const float *high = a[m * K / 8 + 2 * k + 1];
            rows[m][0] = cuda_mma_pair(low[0], low[1]);
            rows[m][1] = cuda_mma_pair(low[2], low[3]);
            rows[m][2] = cuda_mma_pair(high[0], high[1]);
            rows[m][3] = cuda_mma_pair(high[2], high[3]);
        }
        CUDA_UNROLL
        for (int j = 0; j < N / 8; j += 2) {
            cuda_mma_load(true, b, k * 16 * stride + j * 8, columns);
            CUDA_UNROLL
            for (int m = 0; m < M; m++) {
                cuda_mma(rows[m], columns, c[m * N / 8 + j]);
                cuda_mma(rows[m], columns + 2, c[m * N / 8 + j + 1]);
            }
        }
    }
}

template <int M, int N, int K>
CUDA_DEVICE void cuda_mma_columns(const float (*a)[4], float *spare,
                                  const float *b, float (*c)[4])
{
    const int stride = CUDA_MMA_STRIDE(float, N);
    const int row = CUDA_MMA_STRIDE(float, K);
    static_assert(M == 1, "");
    int at = cuda_lane() / 4 * row, pair = cuda_lane() % 4 * 2;
    CUDA_UNROLL
    for (int j = 0; j < K / 8; j++)
        for (int i = 0; i < 4; i++)
            spare[at + i / 2 * 8 * row + j * 8 + pair + i % 2] = a[j][i];
    __syncwarp();
    for (int k = 0; k < K; k++) {
        float a0 = spare[at + k], a8 = spare[at + 8 * row + k];
        CUDA_UNROLL
        for (int j = 0; j < N / 8; j++) {
            const float *pieces = b + k * stride + j * 8 + pair;
            c[j][0] = fmaf(a0, pieces[0], c[j][0]);
            c[j][1] = fmaf(a0, pieces[1], c[j][1]);
            c[j][2] = fmaf(a8, pieces[0], c[j][2]);
            c[j][3] = fmaf(a8, pieces[1], c[j][3]);
        }
    }
    __syncwarp();
}
