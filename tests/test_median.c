/* Medians of few values, in any order. */
#include <math.h>

#include "src/base/median.h"
#include "tests/tap.h"

int main(void)
{
    double one[] = { 3 };
    double odd[] = { 9, -1, 4, 4, 100 };
    double even[] = { 8, 2, -INFINITY, 5 };
    tap_ok(median_of(one, 1) == 3 && median_upper(one, 1) == 3, "one value");
    tap_ok(median_of(odd, 5) == 4 && median_upper(odd, 5) == 4, "odd count");
    tap_ok(median_of(even, 4) == 3.5, "even count: the mean of two");
    tap_ok(median_upper(even, 4) == 5, "or the upper one");
    tap_ok(even[0] == -INFINITY && even[3] == 8, "which sort the values");
    median_sort(odd, 0);
    tap_ok(odd[0] == -1, "nothing to sort");
    return tap_done();
}
