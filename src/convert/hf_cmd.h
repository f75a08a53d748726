/* The commands of tessera-hf, and what they share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/formats/hf/hf_config.h"
#include "src/formats/hf/hf_names.h"
#include "src/formats/weights.h"

enum hf_cmd_format { HF_CMD_FOLDER, HF_CMD_GGUF };
enum hf_cmd_dtype { HF_CMD_F32, HF_CMD_BF16, HF_CMD_F16, HF_CMD_Q8_0 };
/* "fp32", as options have it; and as in config.json. */
extern const char *const hf_cmd_dtypes[];
extern const char *const hf_cmd_torch_dtypes[];

/* What stands on the command line behind the command's name. */
struct hf_cmd {
    const char *paths[2]; /* NULL: not given */
    const char *out;
    const char *said; /* out as it was given, for people */
    enum hf_cmd_format format;
    enum hf_cmd_dtype dtype;
    int64_t shard_bytes_max;
    bool adapter;
    bool verify;
    int exit_code; /* set by a command whose result is no error; 0 before */
};

enum err hf_import(struct hf_cmd *cmd);
enum err hf_export(struct hf_cmd *cmd);
enum err hf_verify(struct hf_cmd *cmd);
/* The mean of the weights of MODELs, all alike, as import writes a checkpoint.
 * ERR_USAGE names what is not alike. */
enum err hf_average(const char *out, char *const *paths, int count);

/* --- shared --- */

/* Between pieces of the work. ERR_IO: a signal has asked to stop, and what was
 * begun is to go. */
enum err hf_poll(void);

/* A MODEL with its parameters, all of which are there and no others. */
struct hf_model {
    struct weights *weights;
    const struct weights_about *about;
    struct params *params;
};

enum err hf_verify_open(const char *path, struct hf_model *out);
void hf_verify_close(struct hf_model *model);

#define HF_VERIFY_DIFFERENT 1
/* Reads `path` back and compares it with the model: every bit is the same, or
 * that of the model's number rounded to this type. ERR_DATA says where not. */
enum err hf_verify_written(struct hf_model *model, const char *path,
                           enum hf_cmd_dtype dtype);

/* config.json, generation_config.json, tokenizer, template and model card, into
 * a folder; file: of the weights, for the card. */
enum err hf_beside_write(const struct hf_model *model, enum arch arch,
                         enum hf_cmd_dtype dtype, const char *folder);
enum err hf_card_write(const struct hf_model *model, const char *what,
                       enum hf_cmd_dtype dtype, const char *folder);
/* The tokenizer.json of the model: its own, or one that is as "bytes" is;
 * malloc'ed, NULL: it has none. */
enum err hf_bytes_tokenizer(const struct weights_about *about, char **text,
                            size_t *bytes);

/* All tensors into a GGUF file of this name. */
enum err hf_gguf_write(struct hf_model *model, enum hf_cmd_dtype dtype,
                       const char *path);
