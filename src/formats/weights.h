/* The weights of a model, wherever they lie: what every program that takes a
 * MODEL opens.
 *
 * A MODEL is a checkpoint of ours, of any strategy and number of ranks; a run
 * directory, which means its newest good checkpoint, or with #best or #STEP behind it
 * the best one or that of a step; either with #NAME behind it, which means the weights that an algorithm of the run keeps (RUN#ema); a
 * Hugging Face folder; an adapter of peft with its base; or a GGUF file. Whatever it is, its tensors have the
 * names, shapes and row order of params.h, and their elements are read as
 * floats. Where a checkpoint has adapters (LoRA), what is read is the base with
 * the adapters merged. Any of them may lie at an address, s3://BUCKET/PREFIX: then a
 * copy is fetched (src/mirror/home.h).
 *
 * Nothing is held but tables: reads go to the files part by part. One thread at a
 * time. No communicator: every rank may open for itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernel_memory.h"
#include "src/base/err.h"
#include "src/model/model_config.h"
#include "src/model/params.h"
#include "src/text/tokenizer/tokenizer.h"

struct weights;

/* What an open one takes at most beside its tables while it is read in order:
 * of a checkpoint two spans from the disk, and a verified block of each of two
 * extents (checkpoint/tools/ckpt_tensor.h), and what checksums are made of
 * (weights_sums.h). Measured. A base of adapters that is itself one with
 * adapters is two that are open. */
#define WEIGHTS_READING_BYTES ((size_t)44 << 20)

enum weights_kind {
    WEIGHTS_CHECKPOINT,
    WEIGHTS_HF,
    WEIGHTS_GGUF,
    WEIGHTS_PEFT
};
/* For ledgers. */
static const char *const weights_kind_names[] = { "checkpoint", "hf", "gguf",
                                                  "peft" };

/* The adapters of a checkpoint that has some. */
struct weights_lora {
    int64_t rank;
    double alpha, dropout;
    const char
        *base;  /* path of what they were trained on; NULL: fresh weights */
    int others; /* tensors that have trained beside them, ... */
    const char *other; /* ... one of these */
    int fresh; /* that did not, and are not the base's either, but fresh, ... */
    const char *fresh_one; /* ... one of these */
};

/* Lent by the weights. */
struct weights_about {
    enum weights_kind kind;
    const char *path;  /* of the checkpoint, folder or file that is read */
    const char *named; /* with #NAME where there was one: it opens the same */
    const char
        *place; /* what others are told: path, or what that is a copy of */
    struct model_config config;
    const char *dtype;  /* as stored: "float32", "bfloat16", "Q4_1", "mixed" */
    int64_t step;       /* of the checkpoint; -1: another kind */
    int64_t tokens;     /* trained so far; -1: not known */
    const char *sha256; /* of what was read, as far as it is known without
                           reading all of it: a checkpoint's manifest, a
                           folder's config and headers, not of the tokenizer's
                           files; for ledgers */
    const char *sha256_files; /* with these, as it was once; NULL: no others */
    /* tokenizer.json and the chat template's text; NULL: there is none. And why the
     * tokenizer that there is is none; else NULL. */
    const char *tokenizer;
    const char *unusable;
    size_t tokenizer_bytes;
    const char *chat_template;
    /* "bytes": it was trained with that, which needs no file; NULL: with
     * another, or none is known. */
    const char *builtin_tokenizer;
    /* A generation_config.json's text, with all tokens that end a text; NULL:
     * nothing is said. */
    const char *generation;
    int32_t bos, eos, pad;        /* -1: none */
    int32_t named_bos, named_eos; /* where a file names others by their texts */
    int64_t vocab; /* tokens that the model was trained with, at most
                         config.vocab_size, whose other rows mean nothing */
    const struct weights_lora *lora; /* merged in what is read; NULL: none */
    bool imported;                   /* a checkpoint that tessera-hf has made */
    /* Path of what was imported, or of the weights that did not train; NULL:
     * neither is known. */
    const char *origin;
};

/* ERR_DATA, ERR_CHECKPOINT, ERR_UNSUPPORTED, ERR_USAGE: what is wrong with the
 * path, or which option of the model we lack. */
enum err weights_open(const char *path, struct weights **out);
void weights_close(struct weights *weights);
const struct weights_about *weights_about(const struct weights *weights);
/* Whether it has this digest (NULL: none), or had it when a folder's counted
 * its tokenizer's files. */
bool weights_is(const struct weights *weights, const char *sha256);

/* Elements [begin, end) of a parameter of `params`, found by name, its own
 * elements counted from 0. Rows that the source lacks (a vocabulary that was
 * padded) are 0. */
enum err weights_read(struct weights *weights, const struct param *param,
                      int64_t begin, int64_t end, float *out);

/* A matrix of an adapter apart, [rows, cols], which the caller frees; NULL:
 * there is none of this name. Only where about has some. */
enum err weights_read_lora(struct weights *weights, const char *name,
                           int64_t rows, int64_t cols, float **out);

/* Whether every parameter is there in its shape, and nothing is there besides,
 * but for names that match one of the globs (fnmatch, `*` matches slashes,
 * too; a list that is separated by white space; NULL: none): otherwise
 * ERR_DATA with a list of all that do not, name and both shapes (the log has as
 * many as people read). An embedding or output layer may have fewer rows there.
 * A matching parameter keeps what it has; a glob that matches nothing is warned
 * of. The log has `settings`, what is known of the reason, first; "": nothing
 * is. */
enum err weights_match(struct weights *weights, const struct params *params,
                       const char *ignore, const char *settings);
bool weights_ignored(const char *ignore, const char *name);

/* Elements [begin, end) of the flat space of `params`, padding 0, parameters
 * that are ignored left as they are. */
enum err weights_fill(struct weights *weights, const struct params *params,
                      const char *ignore, int64_t begin, int64_t end,
                      float *out);

/* What a MODEL is called where others read it: model cards and configurations
 * that leave this machine have no paths of it. */
#define WEIGHTS_NAME_MAX 256

/* "org/name" of a folder in a cache of the Hugging Face hub
 * (models--org--name/snapshots/...), the run's folder's name of a checkpoint in
 * it, otherwise the last part of the path. */
void weights_name(const char *path, char name[WEIGHTS_NAME_MAX]);

/* Adapters of a checkpoint in PEFT's format, which Hugging Face's peft loads
 * beside the base: adapter_model.safetensors (F32) with names
 * "base_model.model." MODULE ".lora_A.weight", and adapter_config.json.
 *
 * The folder exists and has no such files. ERR_USAGE: the weights have no
 * adapters, or something else of the model has trained, too, which an adapter's
 * file cannot hold; ERR_UNSUPPORTED: no architecture of theirs is the model's.
 */
enum err weights_adapter_export(struct weights *weights, const char *folder);

/* A MODEL that is read by several threads. */
struct weights_readers;

/* The weights must match `params`; both are lent. memory, stream: of what
 * weights_readers_access() lends and of who reads that. */
enum err weights_readers_create(struct weights *weights,
                                const struct params *params,
                                const struct kernel_memory *memory,
                                void *stream, int threads,
                                struct weights_readers **out);
/* NULL is fine. */
void weights_readers_destroy(struct weights_readers *readers);

/* weights_fill() by all threads, each with an interval of its own. `arg` are the
 * readers: a replica_source's (src/parallel/frozen.h). */
enum err weights_readers_fill(void *arg, const struct params *params,
                              int64_t begin, int64_t end, float *out);

/* gather and release only, fp32: a block is read from the files when it is asked for,
 * and one is in memory at a time. Lent. */
const struct param_access *
weights_readers_access(struct weights_readers *readers);
/* Asked before each block, whether to end: ERR_USAGE then. NULL: never. */
void weights_readers_ended(struct weights_readers *readers,
                           bool (*ended)(void *arg), void *arg);

/* A MODEL's tokenizer: the one that is called `given`, as tokenizer_create()
 * has it, with a warning if it is not the one that the model was trained with,
 * as far as that is known; NULL: the model's own, *out NULL where it has none.
 * ERR_USAGE, of the model's own ERR_DATA: it has more tokens than the model's
 * embedding has rows. */
enum err weights_tokenizer_create(const struct weights_about *about,
                                  const char *given, struct tokenizer **out);

/* ERR_USAGE: who needs one has none. */
enum err weights_tokenizer_none(const struct weights_about *about);

/* For who makes something lasting with it: warns of tokens that the model's
 * files name and number differently. */
void weights_tokenizer_warn_names(const struct weights_about *about);

/* That of the model's own; false: it is not known. */
bool weights_tokenizer_sha256(const struct weights_about *about,
                              char sha256[65]);

/* The way back of weights_slices.h: a MODEL's parameters as the tensors that
 * other programs' files have (weights_cut.c, src/formats/hf/hf_names.h). */
struct hf_slice;

/* Gets a tensor's next elements. */
typedef enum err (*weights_cut_sink)(void *arg, const float *data,
                                     int64_t count);

/* Floats that are held at a time: 16 MiB. */
#define WEIGHTS_CUT_FLOATS ((int64_t)4 << 20)

/* The elements of a slice's tensor, from its first to its last, through
 * `buffer` of WEIGHTS_CUT_FLOATS floats. Of a transposed slice larger than the
 * buffer the parameter is read as many times as it is larger. */
enum err weights_cut(struct weights *weights, const struct params *params,
                     const struct hf_slice *slice, float *buffer,
                     weights_cut_sink sink, void *arg);
