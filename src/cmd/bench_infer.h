/* tessera-bench infer: how near the engine (src/infer/infer.h) comes to what the
 * machine allows, for each form in which it holds weights (fp32, bf16, int8), on
 * the shape of a preset or of a MODEL, with weights that mean nothing.
 *
 *   FORM_decode_tokens_per_s  tokens after each other of one text, from 64 on
 *   FORM_decode_gbps  bytes of weights that a token reads, by that time
 *   FORM_read_gbps    of a loop that reads as many bytes by the same threads,
 *                     measured before and after every run of tokens
 *   FORM_decode_ratio  of the two
 *   FORM_prompt_tokens_per_s  512 tokens at once, logits of the last one only
 *   FORM_prompt_gflops  of their products (attention's causal half included)
 *   FORM_prompt_ratio  that over peak_gflops
 *   peak_gflops  of multiply-adds in registers by the same threads, measured
 *                beside every prompt
 *
 * Times are medians; the runs of tokens, the reads, the prompts and the peak
 * take turns. */
#pragma once

#include "src/cmd/bench_step.h"

/* options->model: a preset's name, or a MODEL; NULL: smollm2-135m. */
enum err bench_infer(const struct bench_options *options, json_t **result);
