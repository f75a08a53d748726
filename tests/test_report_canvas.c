/* Plots as SVG: texts are escaped, numbers are numbers. */

#include "src/report/plot.h"
#include "src/report/top_frame.h"
#include "tests/tap.h"

static void test_plot(void)
{
    struct plot *plot = calloc(1, sizeof *plot);
    char *text = NULL;
    size_t bytes = 0;
    snprintf(plot->title, sizeof plot->title, "A & B");
    tap_ok(plot_is_empty(plot), "an empty plot is empty");
    struct plot_series *series =
        plot_add(plot, "\"><script>alert(1)</script>", PLOT_LINE, 0);
    for (int i = 0; i < 500; i++)
        if (plot_point(series, i,
                       i == 250  ? 1e7
                       : i == 99 ? NAN
                                 : 2.0 + i % 7,
                       1, 9) != ERR_OK)
            abort();
    struct plot_frame frame = plot_frame(plot);
    tap_ok(frame.log, "a spike makes the axis logarithmic");
    FILE *out = open_memstream(&text, &bytes);
    tap_ok(plot_draw(plot, out) == ERR_OK, "a plot is drawn as SVG");
    fclose(out);
    tap_ok(strstr(text, "<script") == NULL && strstr(text, "A &amp; B") != NULL,
           "with its names escaped");
    tap_ok(strstr(text, "nan") == NULL && strstr(text, "inf") == NULL,
           "and all its numbers are numbers");
    free(text);
    plot_free(plot);
    free(plot);
}

static void test_escape(void)
{
    char *text = NULL, line[8];
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    canvas_escape(out, "<a href='x' b=\"y\">&\x01\x7f\xff\xc3\xa9"
                       "\xe2\x80\xae\xc2\x9b\n\xe2\x82");
    fclose(out);
    tap_is_str(text,
               "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;"
               "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9"
               "\xef\xbf\xbd\xef\xbf\xbd\n\xef\xbf\xbd\xef\xbf\xbd",
               "HTML is escaped");
    free(text);
    top_frame_plain("a\x1b[2Jb\nc", line, sizeof line);
    tap_is_str(line, "a?[2Jb ", "no escape sequence reaches a terminal");
}

static void test_numbers(void)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        { 0, "0" },           { 12500, "12.5k" }, { 1e-4, "1e-4" },
        { 0.0015, "0.0015" }, { 3e6, "3M" },      { -20000, "-20k" }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        plot_number(cases[i].value, text, sizeof text);
        tap_is_str(text, cases[i].text, "a tick");
    }
}

int main(void)
{
    test_plot();
    test_escape();
    test_numbers();
    return tap_done();
}
