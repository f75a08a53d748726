/* Checkpoints of a run in an object store, at checkpoint.mirror:
 *
 *   PREFIX/step-000000060-01234567-0123456789ab/...   a checkpoint's files
 *
 * The digits behind the step are the first of the SHA-256 of the run's uuid and of
 * MANIFEST.json: a folder is of one run and of one save, and what lies in it after an
 * upload that was cut off needs no replacing. MANIFEST.json comes last: a folder
 * without it is no checkpoint. A file belongs to one rank, by its number; nothing is
 * agreed on, and who commits asks the store whether all are there. */
#pragma once

#include "checkpoint/files/ckpt_index.h"
#include "src/data/remote/store_write.h"

/* A checkpoint's folder there; its files are those of the manifest. */
struct mirror_step {
    int64_t step;    /* -1: none */
    char folder[64]; /* its name */
    char *text;      /* MANIFEST.json */
    size_t text_bytes;
    struct ckpt_manifest *manifest;
    double loss; /* and of what, as ckpt_index_loss() has them */
    char of[CKPT_INDEX_OF_BYTES];
};
/* Zeros are fine. */
void mirror_step_free(struct mirror_step *step);

/* The checkpoint in a folder of this machine; of its manifest the files alone. */
enum err mirror_step_of(const char *checkpoint_dir, struct mirror_step *out);

/* The step of a folder's name there, or of one in a run directory, to which more may be
 * added behind a "/"; -1: it is no such name. */
int64_t mirror_names_step(const char *name);
/* Whether two such names are of one run, and of one save if of one step. */
bool mirror_names_go_together(const char *a, const char *b);

/* The newest whole one between two steps, without its manifest; step -1: none. uuid: of
 * the run whose they are to be; "": of whatever run, but ERR_USAGE where the last ones,
 * a page of the store's list, are of several. Of 10^6 steps some 30 pages are read. */
enum err mirror_newest(struct store *store, int64_t above, int64_t below,
                       const char *uuid, struct mirror_step *out);

/* Put a rank's share of the files that lie in a folder; or get them back into it, where
 * MANIFEST.json is, each checked: damage is ERR_CHECKPOINT, a file that is no more there
 * ERR_DATA. */
enum err mirror_files(struct store *store, const struct mirror_step *step,
                      const char *dir, int rank, int ranks, bool back);
/* How many files are not there yet, and one of them. */
enum err mirror_missing(struct store *store, const struct mirror_step *step,
                        int *count, char file[CKPT_FILE_BYTES]);
/* When none is missing: from now on it is a checkpoint. */
enum err mirror_commit(struct store *store, const struct mirror_step *step);
/* A run's folders there as an attempt knows them, which alone adds to them: they are
 * listed once. Zeros before. */
enum mirror_is { MIRROR_UNSEEN, MIRROR_PART, MIRROR_WHOLE };
struct mirror_known {
    struct mirror_folder {
        int64_t step;
        enum mirror_is is;
        bool pinned, best; /* there */
        double loss;
        char of[CKPT_INDEX_OF_BYTES], folder[64];
    } * list; /* [count] in the order of names */
    int count, capacity;
    bool listed;
};
void mirror_known_free(struct mirror_known *known);
/* UNSEEN: before its first file is put, since it may be whole there from an attempt
 * before; WHOLE: behind its commit. */
enum err mirror_known_add(struct mirror_known *known,
                          const struct mirror_step *step, enum mirror_is is);
/* Learn of one what is UNSEEN, with `losses` its loss, and let the pin there follow
 * run_dir's. */
enum err mirror_look(struct store *store, const char *run_dir, bool losses,
                     struct mirror_folder *one);
/* Behind a commit: of the run's others the keep - 1 newest whole ones below the step
 * and multiples of keep_every (0: none) stay, with keep_best the best there, and those
 * that are pinned; keep 0: all whole ones. What is not whole goes, and with `later` what
 * is of the same or of a later step. A pin there is an object PINNED in the folder, put
 * and taken back as run_dir has it, as long as that has the same save. */
enum err mirror_retain(struct store *store, const struct mirror_step *step,
                       int64_t keep, int64_t keep_every, bool later,
                       const char *run_dir, bool keep_best,
                       struct mirror_known *known);

/* The directory whose run is mirrored there, by its last attempt: an object
 * owner-RUN-TOKEN. Zeroed at first; store_names_free(&owner.before) at the end. */
struct mirror_owner {
    char name[64];             /* "": not yet */
    struct store_names before; /* what could not be removed may be among them */
};
/* ERR_USAGE where it was another directory's, which has a run of the same uuid still:
 * this one is a copy of it. */
enum err mirror_own(struct store *store, const struct mirror_step *step,
                    const char *run_dir, struct mirror_owner *owner);
/* ERR_BUSY where another has come since. By who has the run's lock. */
enum err mirror_still_own(struct store *store, const char *run_dir,
                          const struct mirror_owner *owner);

/* Whether a folder there is a checkpoint. */
enum err mirror_is_whole(struct store *store, const char *folder, bool *whole);

/* Fetch MANIFEST.json into a folder, and PINNED if it is there. */
enum err mirror_get_manifest(struct store *store, const char *folder,
                             const char *to);
