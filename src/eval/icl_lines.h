/* What is told of each example, a line of JSON:
 *
 *   {"task": "piqa", "category": null, "example": 0, "cut": false,
 *    "rows": [{"tokens": [1, 2, 3], "span": 1}, ...],
 *    "scores": [5.25, 7.5], "choice": 0, "gold": 1, "right": false}
 *
 * "scores" is exp(mean cross entropy) of each row's last `span` tokens. Of
 * generation there are "text" and "compared", what is generated and what of it
 * was compared, instead of scores and choice. Prompts alone end with "rows". */
#pragma once

#include "src/base/array.h"
#include "src/base/err.h"
#include "src/eval/icl_prompts.h"

/* What came of an example; NULL and empty where the kind has none. */
struct icl_outcome {
    const float *scores; /* [row_count] */
    int64_t choice;
    const uint8_t *text;
    size_t bytes;
    const char *compared;
    bool right;
};

/* Append the line, with its end; outcome NULL: the prompt alone. */
enum err icl_lines_add(const struct icl_task *task, const struct icl_part *part,
                       const struct icl_example *example,
                       const struct icl_outcome *outcome, struct buffer *out);
