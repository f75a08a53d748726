/* May a node that we have drained serve again? The way back is as careful as the
 * way out: a pure function as drain.h's, with its actions and events.
 *
 *     node -> look -> pause -> look -> node -> resume
 *
 * Only a drain of ours is taken back, whose reason begins with CLUSTER_OURS and is
 * the same after the looks as before them: an administrator who has come meanwhile
 * has said something else. What the first look does not find sound stays drained.
 * The marks of drains stay too, so a node that goes in and out counts for a storm
 * each time. Every way through has one DRAIN_SAY. */
#pragma once

#include "src/control/drain.h"

#define UNDRAIN_LOOKS 2

struct undrain_request {
    const char *node;
    bool enforce;   /* else only what would be done is said */
    double pause_s; /* between the looks */
};

struct undrain {
    struct undrain_request request;
    struct cluster_node node; /* as it was at first */
    enum drain_what last;
    int looks; /* that found it sound */
    bool said;
    bool back; /* the result: the node serves again */
};

void undrain_begin(struct undrain *undrain,
                   const struct undrain_request *request);
/* The first call has an event with nothing but the time. */
struct drain_action undrain_next(struct undrain *undrain,
                                 const struct drain_event *event);
