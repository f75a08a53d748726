/* What the CUDA table chooses by measurement: cuBLASLt's algorithms, and whose
 * attention. */
#pragma once

#include <stddef.h>

#include "kernels/kernels.h"

/* The table's measure, choices and choose. */
enum err cuda_choice_measure(const struct kernel_ctx *ctx, void *memory,
                             size_t bytes);
enum err cuda_choice_write(char **text);
enum err cuda_choice_read(const struct kernel_ctx *ctx, const char *text);

/* The table's attention: the own kernels' or cuDNN's. */
enum err cuda_choice_attention_forward KERNEL_LIKE(attention_forward);
enum err cuda_choice_attention_backward KERNEL_LIKE(attention_backward);
/* Scratch that libraries may take, besides the own kernels'; and cuDNN. */
size_t cuda_choice_scratch(const struct kernel_limits *limits);
size_t cuda_choice_attention_scratch(const struct kernel_limits *limits);

/* The table's allow_fallback and chosen. */
enum err cuda_choice_allow(bool allow);
void cuda_choice_chosen(struct kernel_chosen *out);

/* 91900: version 9.19; 0: there is none. */
size_t cuda_choice_dnn_version(void);
