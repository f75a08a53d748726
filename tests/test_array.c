/* Arrays that grow: any type of element and of number, and what is said when
 * there is no memory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "tests/tap.h"

/* Adds 1000 numbers, with a capacity of the type. */
#define TEST_CAPACITY(type)                                                    \
    do {                                                                       \
        int64_t *list = NULL;                                                  \
        type capacity = 0, count = 0;                                          \
        bool right = true;                                                     \
        int grown = 0;                                                         \
        while (count < 1000) {                                                 \
            type before = capacity;                                            \
            right &= array_room(&list, &capacity, count + 1) == ERR_OK;        \
            grown += capacity != before;                                       \
            list[count] = 7 * (int64_t)count;                                  \
            count++;                                                           \
        }                                                                      \
        for (type i = 0; i < count; i++)                                       \
            right &= list[i] == 7 * (int64_t)i;                                \
        tap_ok(right &&capacity >= 1000, "all are there: " #type);             \
        tap_ok(grown <= 10, "grown %d times", grown);                          \
        free(list);                                                            \
    } while (0)

int main(void)
{
    TEST_CAPACITY(size_t);
    TEST_CAPACITY(int64_t);
    TEST_CAPACITY(uint32_t);
    TEST_CAPACITY(int);
    double one = 1, *list = &one;
    size_t capacity = 1;
    tap_ok(array_room(&list, &capacity, 0) == ERR_OK && list == &one,
           "nothing moves where there is room");
    list = NULL;
    tap_ok(array_room(&list, &capacity, SIZE_MAX / 4) == ERR_MEMORY &&
               list == NULL && capacity == 1,
           "too much: ERR_MEMORY, and all as it was");
    tap_ok(strstr(err_text(), "times 8 bytes for list") != NULL, "what for: %s",
           err_text());
    int small = 0;
    char *text = NULL;
    tap_ok(array_room(&text, &small, (size_t)INT32_MAX + 1) == ERR_MEMORY &&
               small == 0,
           "more than a number of 32 bits counts: %s", err_text());
    return tap_done();
}
