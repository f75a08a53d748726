/* What checkpoint.h5 says about itself: attributes, from the state.
 *
 *   /               step, ranks, and each member of the state that is a number,
 *                   a text, true or false, or a list of texts
 *   /config         likewise the members of the state's "fixed", the settings
 *                   that a run keeps: "model.d_model" is the attribute d_model
 *                   of /config/model, "tokenizer" one of /config itself
 *   a tensor        what the state's "about" says of it:
 *
 *     "about": {
 *       "kinds": {"": {"kind":"weight"}, "optimizer/exp_avg": {...}},
 *       "tensors": {"transformer.blocks.*.attn.Wqkv.weight": {"role":...}}}
 *
 * A kind is what stands in a name before the last slash; of the rest the star
 * is a number between two dots, which becomes the attribute `layer`. */
#pragma once

#include "checkpoint/files/ckpt_h5.h"
#include "checkpoint/files/ckpt_manifest.h"

/* The attributes of one object, as messages for headers. */
struct ckpt_view_attributes {
    const char *of; /* whose */
    struct ckpt_h5 messages;
};

/* Those of several objects, by whose they are. */
struct ckpt_view_sets {
    struct ckpt_view_attributes *list;
    size_t count;
};

struct ckpt_view_about {
    struct ckpt_view_attributes root;
    struct ckpt_view_sets config; /* of the groups in /config; "": its own */
    struct ckpt_view_sets kinds, tensors;
    json_t *fixed; /* its keys cut at the first dot */
};

/* Puts the texts of all attributes into the heap; without memory file->failed is
 * set. The manifest is lent. */
void ckpt_view_about_create(struct ckpt_h5 *file,
                            const struct ckpt_manifest *manifest,
                            struct ckpt_view_about *out);
void ckpt_view_about_destroy(struct ckpt_view_about *about);

/* Into a header that is open; `set` may be NULL. */
void ckpt_view_about_put(struct ckpt_h5 *file,
                         const struct ckpt_view_attributes *set);
/* NULL: there is none. */
const struct ckpt_view_attributes *
ckpt_view_about_find(const struct ckpt_view_sets *sets, const char *of);
/* What is said of a tensor. */
void ckpt_view_about_tensor(const struct ckpt_view_about *about,
                            struct ckpt_h5 *file, const char *name);
