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

struct ckpt_view_about;

/* Puts the texts of all attributes into the heap. The manifest is lent. */
enum err ckpt_view_about_create(struct ckpt_h5 *file,
                                const struct ckpt_manifest *manifest,
                                struct ckpt_view_about **out);
/* NULL is fine. */
void ckpt_view_about_destroy(struct ckpt_view_about *about);

/* Messages of a header that is open. */
void ckpt_view_about_root(const struct ckpt_view_about *about,
                          struct ckpt_h5 *file);
bool ckpt_view_about_has_config(const struct ckpt_view_about *about);
void ckpt_view_about_config(const struct ckpt_view_about *about,
                            struct ckpt_h5 *file);
void ckpt_view_about_tensor(const struct ckpt_view_about *about,
                            struct ckpt_h5 *file, const char *name);

/* The groups inside /config; NULL: there is none of this number. */
const char *ckpt_view_about_group(const struct ckpt_view_about *about, int i);
void ckpt_view_about_group_put(const struct ckpt_view_about *about,
                               struct ckpt_h5 *file, int i);
