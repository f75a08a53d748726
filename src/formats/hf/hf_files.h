/* What a Hugging Face folder has besides weights and shape, as far as it is of
 * use here: the files of the tokenizer, the template of chats, and which tokens
 * begin and end texts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

enum hf_file {
    HF_FILE_TOKENIZER,
    HF_FILE_TOKENIZER_CONFIG,
    HF_FILE_CHAT_TEMPLATE,
    HF_FILE_GENERATION_CONFIG,
    HF_FILES
};

/* "tokenizer.json" */
const char *hf_files_name(enum hf_file file);

struct hf_files {
    char *text[HF_FILES]; /* malloc'ed, with a NUL behind; NULL: none */
    size_t bytes[HF_FILES];
};

/* Those of a folder. A tokenizer_config.json with a chat template in it, as
 * older programs write, gives the template, too, where there is no file of it.
 * ERR_DATA names the file. Zeroed by the caller, who frees in any case. */
enum err hf_files_read(const char *folder, struct hf_files *files);
void hf_files_free(struct hf_files *files);

/* What the files say; -1: there is no such token. */
struct hf_tokens {
    int64_t vocab; /* one more than the highest token; 0: no tokenizer */
    int32_t bos, eos;
    int32_t named_bos, named_eos; /* where tokenizer_config.json names others */
    int32_t pad;                  /* fills up texts of a batch */
    char *generation; /* of a generation_config.json, with the ends, all of
                         them, and the padding that config.json alone has;
                         malloc'ed, NULL: nothing is said */
};

/* Tokens that end and begin texts: generation_config.json's, or else those of
 * the text of a config.json (NULL: there is none), by number; or else those
 * that tokenizer_config.json names. Of a list of numbers it is the one that is
 * named, or else the first. Padding is the token that is named, or else by
 * number; one that the tokenizer lacks is none. ERR_DATA: a file is malformed,
 * ERR_UNSUPPORTED: one that is named is not in the tokenizer; `where` is for messages. */
enum err hf_files_tokens(const struct hf_files *files, const char *where,
                         const char *config, size_t config_bytes,
                         struct hf_tokens *out);

/* The text of a token, malloc'ed; NULL: there is none of this number, or none
 * that is in the list of added ones where only these count. */
enum err hf_files_token_text(const struct hf_files *files, const char *where,
                             int32_t token, bool added_only, char **text);
