/* Which checkpoint is the best of a run, and what RUN#best and RUN#STEP name.
 *
 * A save that follows an evaluation of its step has the loss in its state; where
 * the evaluation follows, as at a run's end, it is put into a file of the
 * checkpoint's folder. So what is best is a matter of the checkpoints that are
 * there: it comes and goes with them, whether a run is resumed, goes back, or is
 * copied, and no rank has to be asked. Losses compare where they are of the same
 * set and as many tokens; the newest checkpoint that has one says which. */
#include "checkpoint/files/ckpt_index_private.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"

void ckpt_index_loss_write(const char *run_dir, int64_t step,
                           const json_t *eval)
{
    char dir[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    char *text = json_dumps(eval, JSON_COMPACT);
    if (text != NULL && ckpt_index_path(dir, run_dir, step) == ERR_OK &&
        fsio_path(path, "%s/" CKPT_EVAL_FILE, dir) == ERR_OK &&
        fsio_exists(dir) &&
        fsio_write_atomic(path, text, strlen(text)) != ERR_OK)
        log_warn("%s does not have its loss: %s", dir, err_text());
    free(text);
}

double ckpt_index_loss(const char *checkpoint_dir, const json_t *state,
                       char of[CKPT_INDEX_OF_BYTES])
{
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    json_t *eval = json_incref(json_object_get(state, "eval"));
    if (eval == NULL && checkpoint_dir != NULL &&
        fsio_path(path, "%s/" CKPT_EVAL_FILE, checkpoint_dir) == ERR_OK &&
        fsio_exists(path) &&
        fsio_read_file(path, 65536, &text, &bytes) == ERR_OK)
        eval = json_loadb(text, bytes, 0, NULL);
    const json_t *value = json_object_get(eval, "loss");
    const char *set = json_string_value(json_object_get(state, "eval_set"));
    double loss = json_is_number(value) ? json_number_value(value) : NAN;
    snprintf(of, CKPT_INDEX_OF_BYTES, "%.64s %lld", set != NULL ? set : "",
             (long long)json_integer_value(json_object_get(eval, "tokens")));
    free(text);
    json_decref(eval);
    return loss;
}

bool ckpt_index_better(double loss, const char *of, double *least,
                       char newest[CKPT_INDEX_OF_BYTES])
{
    if (!(loss < *least) || (newest[0] != '\0' && strcmp(of, newest) != 0))
        return false;
    snprintf(newest, CKPT_INDEX_OF_BYTES, "%s", of);
    *least = loss;
    return true;
}

/* The newer of two equal ones. One that cannot be read now may be the best, but for
 * one that has gone meanwhile. */
enum err ckpt_index_best(const char *run_dir, bool sizes, int64_t *step)
{
    enum err rc = ERR_OK;
    int64_t *steps = NULL;
    int count = 0;
    double least = INFINITY;
    char newest[CKPT_INDEX_OF_BYTES] = "";
    *step = -1;
    TRY_OUT(ckpt_index_steps(run_dir, &steps, &count, NULL));
    while (count-- > 0) {
        char path[FSIO_PATH_MAX], of[CKPT_INDEX_OF_BYTES];
        struct ckpt_manifest *manifest = NULL;
        TRY_OUT(ckpt_index_path(path, run_dir, steps[count]));
        rc = ckpt_manifest_read(path, NULL, NULL, &manifest);
        if (rc == ERR_OK && sizes)
            rc = ckpt_manifest_check_sizes(manifest, path);
        if (rc == ERR_OK &&
            ckpt_index_better(ckpt_index_loss(path, manifest->state, of), of,
                              &least, newest))
            *step = steps[count];
        ckpt_manifest_destroy(manifest);
        if (rc == ERR_CHECKPOINT || rc == ERR_UNSUPPORTED)
            log_warn("%s is passed over, whatever its loss: %s", path,
                     err_text());
        else if (rc != ERR_OK && (fsio_exists(path) || errno != ENOENT))
            goto out;
        rc = ERR_OK;
    }
out:
    free(steps);
    return rc;
}

bool ckpt_index_is_named(const char *text)
{
    const char *mark = strrchr(text, '#');
    return mark != NULL && mark > text && !fsio_exists(text) &&
           (strcmp(mark, "#best") == 0 ||
            (mark[1] != '\0' && strlen(mark) <= 13 &&
             strspn(mark + 1, "0123456789") + 1 == strlen(mark)));
}

enum err ckpt_index_named(const char *text, char path[FSIO_PATH_MAX])
{
    char run_dir[FSIO_PATH_MAX];
    int64_t step = -1;
    const char *mark = strrchr(text, '#');
    if (!ckpt_index_is_named(text))
        return fsio_path(path, "%s", text);
    TRY(fsio_path(run_dir, "%.*s", (int)(mark - text), text));
    if (mark[1] != 'b')
        step = strtoll(mark + 1, NULL, 10);
    else
        TRY(ckpt_index_best(run_dir, true, &step));
    TRY(ckpt_index_path(path, run_dir, step));
    if (step >= 0 && fsio_exists(path))
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "%s: the run has no such checkpoint%s: tessera-ckpt ls %s "
                   "tells which it has",
                   text, mark[1] == 'b' ? " that was evaluated" : "", run_dir);
}
