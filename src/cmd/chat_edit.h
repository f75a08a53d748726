/* Lines that are typed on a terminal, with libedit's keys and what was typed before.
 * A build without it (EDIT=0), and a terminal that cannot, have none: NULL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct chat_edit;

/* byte(): the next one that is typed, or -1: the line ends without having come. */
/* Whether lines of this terminal can be edited. */
bool chat_edit_can(void);
struct chat_edit *chat_edit_create(int (*byte)(void *arg), void *arg);
void chat_edit_destroy(struct chat_edit *edit);
/* A line without its end, lent until the next call; NULL: byte() or Ctrl-D ended it. */
const char *chat_edit_line(struct chat_edit *edit, const char *prompt,
                           size_t *bytes);
/* A signal that was blocked does now what it does, with the terminal as others know it;
 * where it goes on the line is there again. `edit` may be NULL. */
void chat_edit_signal(struct chat_edit *edit, int signal);

#if !TESSERA_WITH_EDIT
#define chat_edit_can() false
#define chat_edit_signal(edit, signal) ((void)(signal))
#define chat_edit_create(byte, arg) ((void)(byte), NULL)
#define chat_edit_destroy(edit) ((void)(edit))
#define chat_edit_line(edit, prompt, bytes) ((void)(prompt), NULL)
#endif
