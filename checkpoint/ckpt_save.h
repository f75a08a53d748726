/* What a save does, step after step, without saying when: the parts that need
 * no agreement and are run by the saver's thread. ckpt_saver.c puts them in
 * order. */
#pragma once

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/fsio.h"

struct ckpt_save {
    struct ckpt_options options; /* the texts are the saver's */
    char run_dir[FSIO_PATH_MAX];
    char attempt[CKPT_NAME_BYTES];
    int rank, ranks;
    int writer, writers; /* place among the ranks that write; -1: none */
    int64_t bytes;       /* payload of all ranks */
    const struct ckpt_item *items; /* where the values are */
    int item_count;

    /* of one save */
    int64_t step;
    json_t *state;
    char tmp[FSIO_PATH_MAX];
    char *record;           /* this rank's, of its shard; NULL: none */
    char *records;          /* rank 0: everybody's, one behind the other */
    const int64_t *lengths; /* of them, [ranks] */
};

/* Whether the items can be saved at all; needs no other rank. */
enum err ckpt_save_check(const struct ckpt_save *save);

/* Who writes, and how much in all: known to everybody. Collective. */
enum err ckpt_save_plan(struct ckpt_save *save, struct comm *comm);

/* Rank 0: make the temporary folder and look for room. */
enum err ckpt_save_begin(struct ckpt_save *save);

/* Write this rank's shard and its record. */
enum err ckpt_save_write(struct ckpt_save *save);

/* Rank 0: the manifest of the gathered records, without a view; *text is
 * malloc'ed. */
enum err ckpt_save_manifest(const struct ckpt_save *save, char **text,
                            size_t *bytes);

/* Rank 0: manifest, commit, LATEST, retention. */
enum err ckpt_save_commit(struct ckpt_save *save);

/* Rank 0, after a failure on any rank: hide and remove the temporary folder. */
void ckpt_save_give_up(const struct ckpt_save *save);
