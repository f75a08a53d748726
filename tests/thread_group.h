/* A group of ranks that are threads of one process, for tests of what is built
 * on struct group_access. What is sent is copied as late as may be and what is
 * received is spoiled as early as may be, so that a buffer used at the wrong
 * time shows. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "src/model/group_access.h"

#define THREAD_GROUP_MAX 4
#define THREAD_GROUP_PATIENCE_S 120

enum mail_state { MAIL_NONE, MAIL_STARTED, MAIL_DONE };

/* From one rank to another in one slot. */
struct mail {
    enum mail_state sending, receiving;
    const void *data;
    void *room;
    size_t data_bytes, room_bytes;
};

struct thread_group {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool misused; /* a slot started twice, sizes that differ, ... */
    struct mail mails[THREAD_GROUP_MAX][THREAD_GROUP_MAX][GROUP_SLOTS];
};

struct thread_member {
    struct thread_group *group;
    int rank;
    struct mail *sends[GROUP_SLOTS],
        *receives[GROUP_SLOTS]; /* not waited for */
};

#define THREAD_GROUP_INIT                                                      \
    {                                                                          \
        .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER   \
    }

static inline enum err thread_member_start(void *arg, int slot, int to,
                                           const void *send, size_t send_bytes,
                                           int from, void *recv,
                                           size_t recv_bytes)
{
    struct thread_member *member = arg;
    struct thread_group *group = member->group;
    pthread_mutex_lock(&group->lock);
    if (member->sends[slot] != NULL || member->receives[slot] != NULL)
        group->misused = true;
    if (send != NULL) {
        struct mail *mail = &group->mails[member->rank][to][slot];
        group->misused |= mail->sending != MAIL_NONE || to == member->rank;
        mail->data = send;
        mail->data_bytes = send_bytes;
        mail->sending = MAIL_STARTED;
        member->sends[slot] = mail;
    }
    if (recv != NULL) {
        struct mail *mail = &group->mails[from][member->rank][slot];
        group->misused |= mail->receiving != MAIL_NONE || from == member->rank;
        memset(recv, 0xff, recv_bytes);
        mail->room = recv;
        mail->room_bytes = recv_bytes;
        mail->receiving = MAIL_STARTED;
        member->receives[slot] = mail;
    }
    pthread_cond_broadcast(&group->moved);
    pthread_mutex_unlock(&group->lock);
    return ERR_OK;
}

static inline bool mail_deliver(struct thread_group *group, struct mail *mail)
{
    if (mail->sending != MAIL_STARTED || mail->receiving != MAIL_STARTED)
        return false;
    if (mail->data_bytes == mail->room_bytes)
        memcpy(mail->room, mail->data, mail->data_bytes);
    else
        group->misused = true;
    mail->sending = mail->receiving = MAIL_DONE;
    pthread_cond_broadcast(&group->moved);
    return true;
}

/* *state is that of a member's side of the mail. */
static inline enum err mail_wait(struct thread_group *group, struct mail *mail,
                                 enum mail_state *state)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += THREAD_GROUP_PATIENCE_S;
    while (!mail_deliver(group, mail) && *state != MAIL_DONE)
        if (pthread_cond_timedwait(&group->moved, &group->lock, &until) != 0)
            return err_set(ERR_COMM, "nobody came");
    *state = MAIL_NONE;
    return ERR_OK;
}

static inline enum err thread_member_wait(void *arg, int slot)
{
    struct thread_member *member = arg;
    struct thread_group *group = member->group;
    struct mail *send = member->sends[slot];
    struct mail *receive = member->receives[slot];
    enum err rc = ERR_OK;
    pthread_mutex_lock(&group->lock);
    group->misused |= send == NULL && receive == NULL;
    if (receive != NULL)
        rc = mail_wait(group, receive, &receive->receiving);
    if (rc == ERR_OK && send != NULL)
        rc = mail_wait(group, send, &send->sending);
    member->sends[slot] = member->receives[slot] = NULL;
    pthread_mutex_unlock(&group->lock);
    return rc;
}

/* Nothing was misused, and nothing that was started was not waited for. */
static inline bool thread_group_fine(const struct thread_group *group)
{
    for (int from = 0; from < THREAD_GROUP_MAX; from++)
        for (int to = 0; to < THREAD_GROUP_MAX; to++)
            for (int slot = 0; slot < GROUP_SLOTS; slot++)
                if (group->mails[from][to][slot].sending != MAIL_NONE ||
                    group->mails[from][to][slot].receiving != MAIL_NONE)
                    return false;
    return !group->misused;
}
