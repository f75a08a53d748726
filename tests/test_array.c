/* Arrays that grow, with any type of number, and what is said when there is no
 * memory. */

#include "src/base/array.h"
#include "tests/tap.h"

/* Adds 1000 numbers, with a capacity of the type. */
#define TEST_CAPACITY(type)                                                    \
    do {                                                                       \
        int64_t *list = NULL;                                                  \
        type capacity = 0, before = 0;                                         \
        int64_t wrong = 0, grown = 0;                                          \
        for (int i = 0; i < 1000; i++, grown += capacity != before) {          \
            before = capacity;                                                 \
            wrong += array_room(&list, &capacity, i + 1) != ERR_OK;            \
            list[i] = 7 * i;                                                   \
        }                                                                      \
        for (int i = 0; i < 1000; i++)                                         \
            wrong += list[i] != 7 * i;                                         \
        tap_ok(wrong == 0 && grown <= 10, "all are there: " #type);            \
        free(list);                                                            \
    } while (0)

int main(void)
{
    TEST_CAPACITY(size_t);
    TEST_CAPACITY(int64_t);
    TEST_CAPACITY(uint32_t);
    TEST_CAPACITY(int);
    double *list = NULL;
    size_t capacity = 0;
    tap_ok(array_room(&list, &capacity, SIZE_MAX / 4) == ERR_MEMORY &&
               list == NULL && capacity == 0,
           "too much: ERR_MEMORY, and all as it was");
    tap_ok(strstr(err_text(), "times 8 bytes for list") != NULL, "what for: %s",
           err_text());
    int small = 0;
    tap_ok(array_room(&list, &small, (size_t)INT32_MAX + 1) == ERR_MEMORY,
           "more than a number of 32 bits counts: %s", err_text());
    return tap_done();
}
