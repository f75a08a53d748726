/* Lines of JSON about examples. */
#include "src/eval/icl_lines.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/text/unicode.h"

#define NAME_BYTES 256

static json_t *rows_json(const struct icl_example *example)
{
    json_t *rows = json_array();
    for (int64_t r = 0; r < example->row_count; r++) {
        const struct icl_row *row = &example->rows[r];
        const int32_t *token = icl_example_tokens(example, r);
        assert(row->span >= 0 && row->span < row->count);
        json_t *tokens = json_array();
        for (int64_t i = 0; i < row->count; i++)
            json_array_append_new(tokens, json_integer(token[i]));
        json_array_append_new(rows, json_pack("{s:o?, s:I}", "tokens", tokens,
                                              "span", (json_int_t)row->span));
    }
    return rows;
}

/* JSON has no infinity, which is null then. */
static json_t *scores_json(const struct icl_example *example,
                           const struct icl_outcome *outcome)
{
    json_t *scores = json_array();
    for (int64_t r = 0; r < example->row_count; r++)
        json_array_append_new(scores, isfinite(outcome->scores[r])
                                          ? json_real(outcome->scores[r])
                                          : json_null());
    return scores;
}

/* Both, so that who looks for why an answer did not count sees what was left of
 * it when it was compared. */
static enum err set_text(json_t *line, const struct icl_outcome *outcome)
{
    json_t *text = unicode_json(outcome->text, outcome->bytes);
    if (text == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    json_object_set_new(line, "text", text);
    json_object_set_new(line, "compared", json_string(outcome->compared));
    return ERR_OK;
}

static enum err set_outcome(json_t *line, const struct icl_example *example,
                            const struct icl_outcome *outcome)
{
    const struct icl_record *record = example->record;
    if (outcome->text != NULL)
        TRY(set_text(line, outcome));
    if (outcome->scores != NULL)
        json_object_set_new(line, "scores", scores_json(example, outcome));
    if (outcome->scores != NULL && example->row_count > 1) {
        json_object_set_new(line, "choice", json_integer(outcome->choice));
        json_object_set_new(line, "gold", json_integer(record->gold));
    }
    json_object_set_new(line, "right", json_boolean(outcome->right));
    return ERR_OK;
}

enum err icl_lines_add(const struct icl_task *task, const struct icl_part *part,
                       const struct icl_example *example,
                       const struct icl_outcome *outcome, struct buffer *out)
{
    enum err rc = ERR_OK;
    char name[NAME_BYTES], *text = NULL;
    icl_task_name(task, name, sizeof name);
    json_t *line = json_pack(
        "{s:o?, s:o?, s:I, s:b, s:o?}", "task", jsontext_string(name),
        "category",
        part->category != NULL ? jsontext_string(part->category) : json_null(),
        "example", (json_int_t)example->number, "cut", (int)example->cut,
        "rows", rows_json(example));
    if (outcome != NULL)
        TRY_OUT(set_outcome(line, example, outcome));
    TRY_OUT(jsontext_make(line, 0, &text));
    TRY_OUT(buffer_add(out, text, strlen(text)));
    TRY_OUT(buffer_add(out, "\n", 1));
out:
    free(text);
    json_decref(line);
    return rc;
}
