/* The way back of weights_pieces.h: a MODEL's parameters as the tensors that
 * other programs' files have. */
#pragma once

#include "src/formats/hf/hf_names.h"
#include "src/formats/weights.h"

/* Gets a tensor's next elements. */
typedef enum err (*weights_cut_sink)(void *arg, const float *data,
                                     int64_t count);

/* Floats that are held at a time: 16 MiB. */
#define WEIGHTS_CUT_FLOATS ((int64_t)4 << 20)

/* The elements of a piece's tensor, from its first to its last, through
 * `buffer` of WEIGHTS_CUT_FLOATS floats. Of a transposed piece larger than the
 * buffer the parameter is read as many times as it is larger. */
enum err weights_cut(struct weights *weights, const struct params *params,
                     const struct hf_piece *piece, float *buffer,
                     weights_cut_sink sink, void *arg);
