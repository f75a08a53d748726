/* The choices of attention as text, which comes from a checkpoint or the run's
 * folder and so may be of any version or damaged. */
#include "kernels/cuda/libraries/cuda_attention_text.h"

#include <inttypes.h>
#include <string.h>

struct attention cuda_attention_shape(const struct cuda_attention_key *key,
                                      const float *slopes)
{
    return (struct attention){ .batch = key->batch,
                               .seq = key->seq,
                               .heads = key->heads,
                               .kv_heads = key->kv_heads,
                               .head_dim = key->head_dim,
                               .scale = 1.0f,
                               .alibi_slopes = key->alibi ? slopes : NULL };
}

void cuda_attention_text_write(FILE *file,
                               const struct cuda_attention_line *line)
{
    const struct cuda_attention_key *k = &line->key;
    fprintf(file,
            "%s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
            " %s",
            line->dnn ? "cudnn" : "own", k->backward ? "backward" : "forward",
            k->batch, k->seq, k->heads, k->kv_heads, k->head_dim,
            k->alibi ? "alibi" : "plain");
    if (line->dnn)
        fprintf(file, " %" PRId64 " %" PRId64 " %s", line->cut.sequences,
                line->cut.heads, line->engine);
    fputc('\n', file);
}

/* Numbers with which no plan overflows. */
static bool is_shape(const struct cuda_attention_key *k)
{
    const int64_t numbers[] = { k->batch, k->seq, k->heads, k->kv_heads };
    struct attention shape = cuda_attention_shape(k, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i] < 1 || numbers[i] > 1 << 20)
            return false;
    return k->head_dim > 0 && k->heads % k->kv_heads == 0 &&
           cuda_dnn_attention_fits(DTYPE_BF16, &shape);
}

/* Texts that keep no engine have at most the number of slices of heads. */
static bool read_rest(const char *text, struct cuda_attention_line *line)
{
    const struct attention shape = cuda_attention_shape(&line->key, NULL);
    struct cuda_dnn_attention_cut *cut = &line->cut;
    int64_t slices;
    int end = 0;
    if (sscanf(text, " %" SCNd64 " %" SCNd64 " %255[^ \n]%n", &cut->sequences,
               &cut->heads, line->engine, &end) == 3)
        return line->dnn && text[end] == '\n' &&
               cuda_dnn_attention_cut_is(&shape, *cut);
    line->engine[0] = '\0';
    return text[0] == '\n' ||
           (sscanf(text, " %" SCNd64 "%n", &slices, &end) == 1 && slices > 1 &&
            text[end] == '\n');
}

bool cuda_attention_text_read(const char **text,
                              struct cuda_attention_line *line)
{
    char who[8], way[16], bias[8];
    struct cuda_attention_key *k = &line->key;
    int end = 0;
    *line = (struct cuda_attention_line){ 0 };
    if (sscanf(*text,
               "%7s %15s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
               " %" SCNd64 " %7s%n",
               who, way, &k->batch, &k->seq, &k->heads, &k->kv_heads,
               &k->head_dim, bias, &end) != 8)
        return false;
    line->dnn = strcmp(who, "cudnn") == 0;
    k->backward = strcmp(way, "backward") == 0;
    k->alibi = strcmp(bias, "alibi") == 0;
    const char *rest = *text + end;
    *text = strchr(rest, '\n');
    if (*text == NULL)
        return false;
    ++*text;
    return (line->dnn || strcmp(who, "own") == 0) &&
           (k->backward || strcmp(way, "forward") == 0) &&
           (k->alibi || strcmp(bias, "plain") == 0) && is_shape(k) &&
           read_rest(rest, line);
}
