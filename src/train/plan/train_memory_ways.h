/* The ways in which one configuration can run on a number of ranks: strategy,
 * shard degree, microbatch, what is computed again, packed or copied. What each
 * takes is planned (train_memory.h), what it costs is estimated, so that the
 * cheapest that fits can be named.
 *
 * Cost is what a step takes beyond its own arithmetic, as a share of that:
 * bytes that a rank sends to other nodes over an assumed balance of FLOPs per
 * byte (those within a node count a tenth), and blocks computed again. Changes
 * that cost no time but something else (other bits, a smaller product, a save
 * that is waited for) have a fixed price. The numbers decide an order, nothing
 * else; ddp costs what zero1 costs and takes more, so it is never chosen. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/train/plan/train_memory.h"

/* The cheapest that fit at place->ranks, best first, at most `max`: no two that
 * differ only in microbatch or shard degree, under "auto" in strategy. All
 * strategies are tried, with "auto" too. limit_bytes as for
 * train_memory_fits(). */
enum err train_memory_ways(const struct train_settings *settings,
                           const struct train_memory_place *place,
                           size_t limit_bytes, int max,
                           struct train_memory_way *ways, int *count);

/* The settings changed so; "auto" stays where `way` only chooses what it would
 * choose. */
void train_memory_apply(const struct train_settings *settings,
                        const struct train_memory_way *way,
                        struct train_settings *out);

/* Whether the settings fit, under "auto" with any strategy that it can choose.
 */
enum err train_memory_fit(const struct train_settings *settings,
                          const struct train_memory_place *place,
                          size_t limit_bytes, bool *fits);

/* "auto" becomes the cheapest strategy with which the settings fit, or where
 * none does the one that takes least; `why` says so in a line. Other strategies
 * stay, and `why` is empty. */
enum err train_memory_strategy(struct train_settings *settings,
                               const struct train_memory_place *place,
                               size_t limit_bytes, char *why, size_t why_size);
