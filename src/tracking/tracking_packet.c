/* Copies records into packets, and keeps packets for the next ones, so that a
 * run which logs the same names allocates nothing after its first steps. Names
 * are not copied: they lie in the run's map of names (tracking_record.h), which
 * only grows and is held by whoever may read them. Texts are copied, as they
 * are the caller's. */
#include "src/tracking/tracking_packet.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"

static void packet_empty(struct tracking_packet *packet)
{
    for (int i = 0; i < packet->record.text_count; i++)
        free(packet->record.texts[i].text);
    free(packet->record.texts);
    packet->record.texts = NULL;
    packet->record.text_count = 0;
    packet->record.count = 0;
}

static void packet_free(struct tracking_packet *packet)
{
    packet_empty(packet);
    free(packet->record.scalars);
    free(packet);
}

static bool copy_texts(struct tracking_record *to,
                       const struct tracking_record *from)
{
    if (from->text_count == 0)
        return true;
    to->texts = calloc((size_t)from->text_count, sizeof to->texts[0]);
    if (to->texts == NULL)
        return false;
    for (int i = 0; i < from->text_count; i++) {
        to->texts[i] = from->texts[i];
        to->texts[i].text = malloc(from->texts[i].bytes + 1);
        to->text_count = i + 1;
        if (to->texts[i].text == NULL)
            return false;
        memcpy(to->texts[i].text, from->texts[i].text,
               from->texts[i].bytes + 1);
    }
    return true;
}

static bool copy_scalars(struct tracking_packet *packet,
                         const struct tracking_record *from)
{
    assert(from->count >= 0 && packet->workers == 0);
    struct tracking_record *to = &packet->record;
    if (array_room(&to->scalars, &packet->room, from->count) != ERR_OK)
        return false;
    if (from->count > 0)
        memcpy(to->scalars, from->scalars,
               (size_t)from->count * sizeof to->scalars[0]);
    to->count = from->count;
    return true;
}

struct tracking_packet *
tracking_packet_make(struct tracking_pool *pool,
                     const struct tracking_record *record)
{
    struct tracking_packet *packet = pool->unused;
    if (packet != NULL)
        pool->unused = packet->next;
    else
        packet = calloc(1, sizeof *packet);
    if (packet == NULL)
        return NULL;
    packet->record.step = record->step;
    packet->record.time_s = record->time_s;
    packet->workers = 0;
    if (copy_scalars(packet, record) && copy_texts(&packet->record, record))
        return packet;
    packet_free(packet);
    return NULL;
}

void tracking_packet_give(struct tracking_pool *pool,
                          struct tracking_packet *packet)
{
    assert(packet->workers > 0);
    if (--packet->workers > 0)
        return;
    packet_empty(packet);
    packet->next = pool->unused;
    pool->unused = packet;
}

void tracking_pool_free(struct tracking_pool *pool)
{
    while (pool->unused != NULL) {
        struct tracking_packet *packet = pool->unused;
        pool->unused = packet->next;
        packet_free(packet);
    }
}
