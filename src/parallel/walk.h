/* The order in which the model reaches its blocks: the calls of struct
 * param_access during one leaf.
 *
 * Where blocks are gathered from other ranks, every rank must make the same
 * calls, also one that has no leaf in this microstep or whose leaf has failed;
 * and what comes next can be fetched ahead. So the order is written down, calls
 * are checked against it, and what is left of it can be walked without a model.
 */
#ifndef TESSERA_PARALLEL_WALK_H
#define TESSERA_PARALLEL_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/model/params.h"

enum walk_kind { WALK_GATHER, WALK_RELEASE, WALK_GRADIENT, WALK_DONE };

struct walk_call {
    enum walk_kind kind;
    int block;
};

struct walk;

enum err walk_create(const struct params *params, struct walk **out);
void walk_destroy(struct walk *walk);

/* Begin with the first call of a training or an evaluation. */
void walk_begin(struct walk *walk, bool training);
/* This call was made; another than the next one is a programmer error. */
void walk_step(struct walk *walk, enum walk_kind kind, int block);
/* The call that comes `ahead` calls after the next one; NULL: the end. */
const struct walk_call *walk_look(const struct walk *walk, int ahead);

/* Buffers for blocks at work, WALK_PLACES kinds: of the embedding, of the final
 * norm, then of a layer: WALK_LAYER of its first block and one of each kind of
 * its experts' matrices. A head that is not tied to the embedding never is at
 * work together with it and shares its buffer. The kind of a block, and
 * elements of the largest of a kind, 0 where there is none. */
#define WALK_LAYER 2
#define WALK_PLACES (WALK_LAYER + 1 + PARAM_EXPERT_KINDS)
int walk_place(const struct params *params, int block);
int64_t walk_place_elements(const struct params *params, int place);

/* Whether the head multiplies by the embedding, whose block it gathers. */
bool walk_tied(const struct params *params);

#endif
