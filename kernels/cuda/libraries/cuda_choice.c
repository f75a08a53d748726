/* The kernel table's choices together: those of products (cuda_blas.c) and of
 * attention (cuda_attention_choice.c) in one text, measured, read and
 * written.
 *
 * Who computes is part of what a run is, because it decides bits. So a
 * run that begins measures, once, on one rank, and all take what that has found;
 * one that goes on takes what its checkpoint says, and ends with the reason
 * where that cannot be had. Until then all ranks have the heuristics' first
 * products and our own attention, which need no choice. */
#include "kernels/cuda/libraries/cuda_choice.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device/cuda.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/libraries/cuda_blas.h"
#include "kernels/cuda/libraries/cuda_blas_plan.h"
#include "kernels/cuda/libraries/cuda_fallback.h"
#ifdef KERNELS_CUDNN /* the headers were there */
#include "kernels/cuda/libraries/cuda_attention_choice.h"
#include "kernels/cuda/libraries/cuda_dnn_attention.h"
#include "src/base/new.h"
#endif

/* Between the choices of products and those of attention. */
#define SEPARATOR "--\n"

/* --- attention --- */

#ifdef KERNELS_CUDNN
/* One for this process, as cuda_blas_shared(). */
static struct cuda_attention_choice *attention;
static char attention_missing[256]; /* why it is NULL */
static pthread_once_t attention_once = PTHREAD_ONCE_INIT;

static void attention_create(void)
{
    static const struct cuda_attention_own own = { cuda_attention_forward,
                                                   cuda_attention_backward,
                                                   cuda_device_time };
    if (cuda_attention_choice_create(NULL, &own, &attention) != ERR_OK)
        snprintf(attention_missing, sizeof attention_missing, "%s", err_text());
}

static struct cuda_attention_choice *attention_shared(void)
{
    pthread_once(&attention_once, attention_create);
    return attention;
}
#endif

enum err cuda_choice_attention_forward KERNEL_LIKE(attention_forward)
{
#ifdef KERNELS_CUDNN
    if (attention_shared() != NULL)
        return cuda_attention_choice_forward(attention, ctx, dtype, shape, qkv,
                                             out, lse);
#endif
    return cuda_attention_forward(ctx, dtype, shape, qkv, out, lse);
}

enum err cuda_choice_attention_backward KERNEL_LIKE(attention_backward)
{
#ifdef KERNELS_CUDNN
    if (attention_shared() != NULL)
        return cuda_attention_choice_backward(attention, ctx, dtype, shape, qkv,
                                              out, lse, dout, dqkv);
#endif
    return cuda_attention_backward(ctx, dtype, shape, qkv, out, lse, dout,
                                   dqkv);
}

size_t cuda_choice_attention_scratch(const struct kernel_limits *limits)
{
#ifdef KERNELS_CUDNN
    return cuda_dnn_attention_cut_scratch(limits);
#else
    (void)limits;
    return 0;
#endif
}

size_t cuda_choice_scratch(const struct kernel_limits *limits)
{
    size_t cut = cuda_choice_attention_scratch(limits);
    return cut > CUDA_BLAS_WORKSPACE ? cut : CUDA_BLAS_WORKSPACE;
}

static enum err attention_measure(const struct kernel_ctx *ctx, void *memory,
                                  size_t bytes)
{
#ifdef KERNELS_CUDNN
    if (attention_shared() != NULL)
        return cuda_attention_choice_measure(attention, ctx, memory, bytes);
#endif
    (void)ctx;
    (void)memory;
    (void)bytes;
    return ERR_OK;
}

static enum err attention_write(char **text)
{
#ifdef KERNELS_CUDNN
    if (attention_shared() != NULL)
        return cuda_attention_choice_write(attention, text);
#endif
    *text = NULL;
    return ERR_OK;
}

/* A text without a cuDNN in it is nobody's business. */
static enum err attention_read(const struct kernel_ctx *ctx, const char *text)
{
#ifdef KERNELS_CUDNN
    if (attention_shared() != NULL && *text != '\0')
        return cuda_attention_choice_read(attention, ctx, text);
#endif
    (void)ctx;
    if (strstr(text, "\ncudnn ") == NULL)
        return ERR_OK;
    return err_set(ERR_UNSUPPORTED,
                   "the run's attention is that of cuDNN, which cannot be used "
                   "here: load the version that the run began with");
}

static void attention_forget(void)
{
#ifdef KERNELS_CUDNN
    if (attention_shared() != NULL)
        cuda_attention_choice_forget(attention);
#endif
}

/* --- both --- */

enum err cuda_choice_measure(const struct kernel_ctx *ctx, void *memory,
                             size_t bytes)
{
    struct cuda_blas *blas = cuda_blas_shared();
    if (blas != NULL)
        TRY(cuda_blas_measure(blas, ctx, memory, bytes));
    return attention_measure(ctx, memory, bytes);
}

enum err cuda_choice_write(char **text)
{
    enum err rc = ERR_OK;
    struct cuda_blas *blas = cuda_blas_shared();
    char *products = NULL, *rest = NULL;
    *text = NULL;
    if (blas != NULL)
        TRY_OUT(cuda_blas_choices(blas, &products));
    TRY_OUT(attention_write(&rest));
    if (asprintf(text, "%s" SEPARATOR "%s", products != NULL ? products : "",
                 rest != NULL ? rest : "") < 0) {
        *text = NULL;
        rc = err_set(ERR_MEMORY, "no memory for the choices of algorithms");
    }
out:
    free(products);
    free(rest);
    return rc;
}

enum err cuda_choice_read(const struct kernel_ctx *ctx, const char *text)
{
    enum err rc = ERR_OK;
    struct cuda_blas *blas = cuda_blas_shared();
    char *products = NULL;
    const char *at = strncmp(text, SEPARATOR, strlen(SEPARATOR)) == 0
                         ? text
                         : strstr(text, "\n" SEPARATOR);
    if (at == NULL)
        return err_set(ERR_DATA, "the choices of algorithms are damaged: there "
                                 "is no line between products and attention");
    at += at == text ? 0 : 1;
    TRY(new_text_part(&products, text, (size_t)(at - text)));
    if (*products != '\0' && blas == NULL)
        TRY_OUT(
            err_set(ERR_UNSUPPORTED,
                    "the run's products are cuBLASLt's, which cannot be used "
                    "here: load the version that the run began with"));
    TRY_OUT(attention_read(ctx, at + strlen(SEPARATOR)));
    if (*products != '\0')
        TRY_OUT(cuda_blas_choose(blas, products));
out:
    if (rc != ERR_OK) /* who measures now has no half of the text's */
        attention_forget();
    free(products);
    return rc;
}

/* NULL: cuDNN is there. */
static const char *dnn_missing(void)
{
#ifdef KERNELS_CUDNN
    return attention_shared() != NULL ? NULL : attention_missing;
#else
    return "cuDNN: its headers were missing when this was built";
#endif
}

enum err cuda_choice_allow(bool allow)
{
    cuda_fallback_allow(allow);
    if (cuda_blas_shared() == NULL)
        TRY(cuda_fallback("products: %s", cuda_blas_missing()));
    if (dnn_missing() != NULL)
        TRY(cuda_fallback("attention: %s", dnn_missing()));
    return ERR_OK;
}

static int write_products(struct kernel_chosen *out)
{
    struct cuda_blas *blas = cuda_blas_shared();
    int kinds, own;
    out->products = "own";
    if (blas == NULL)
        return snprintf(out->text, sizeof out->text, "products own");
    cuda_blas_count(blas, &kinds, &own);
    out->products = own == 0      ? "cublaslt"
                    : own < kinds ? "cublaslt+own"
                                  : "own";
    return snprintf(out->text, sizeof out->text,
                    "products cuBLASLt %zu for %d of %d kinds",
                    cuda_blas_version(blas), kinds - own, kinds);
}

void cuda_choice_chosen(struct kernel_chosen *out)
{
    int used = write_products(out);
    assert(used > 0 && (size_t)used < sizeof out->text);
    char *text = out->text + used;
    size_t bytes = sizeof out->text - (size_t)used;
    out->attention = "own";
    snprintf(text, bytes, ", attention own");
#ifdef KERNELS_CUDNN
    struct cuda_attention_count count;
    if (attention_shared() == NULL)
        return;
    cuda_attention_choice_count(attention, &count);
    if (count.dnn > 0)
        out->attention = count.dnn == count.shapes && count.unfit == NULL
                             ? "cudnn"
                             : "cudnn+own";
    snprintf(text, bytes, ", attention cuDNN %zu for %d of %d shapes%s%s",
             cuda_attention_choice_version(attention), count.dnn, count.shapes,
             count.unfit != NULL ? ", own for " : "",
             count.unfit != NULL ? count.unfit : "");
#endif
}

size_t cuda_choice_dnn_version(void)
{
#ifdef KERNELS_CUDNN
    if (attention_shared() != NULL)
        return cuda_attention_choice_version(attention);
#endif
    return 0;
}
