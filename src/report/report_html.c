/* The page: head, tiles, plots, tables. It is one file that needs nothing else: no
 * font, no image, no library, no network, and its policy (CSP) forbids the
 * browser to fetch any. So it can be sent by mail and opened in ten years.
 * Everything from files goes through canvas_escape(): names of runs, nodes,
 * settings and generated texts are other people's. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/fsio.h"
#include "src/base/units.h"
#include "src/report/report_impl.h"

/* The style sheet and the script of the page. The page is whole without the
 * script, which shows the values under the pointer: it reads them out of the
 * drawn lines, and puts what it shows there as text alone. */

/* Numbers of classes are those of enum ink (canvas.h). */
static const char report_style[] =
    ":root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--line:#dfe3e8;"
    "--i0:#1a1f24;--i1:#5c6670;--i2:#8a939c;--i3:#e6e9ed;--i4:#0072b2;"
    "--i5:#d55e00;--i6:#009e73;--i7:#cc79a7;--i8:#e69f00;--i9:#56b4e9;"
    "--i10:#6b6b6b;--i11:#8c6d31}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#12161b;--card:#1a2027;"
    "--line:#2c343d;--i0:#e8ecf0;--i1:#a3adb8;--i2:#6d7883;--i3:#2a323b;"
    "--i4:#4aa8e0;--i5:#f0803c;--i6:#2cc79b;--i7:#e39cc3;--i8:#f2b632;"
    "--i9:#9ad1f5;--i10:#a6a6a6;--i11:#cdb17a}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);"
    "color:var(--i0);font:15px/1.5 system-ui,-apple-system,'Segoe UI',"
    "Roboto,'DejaVu Sans',sans-serif}\n"
    "main{max-width:1560px;margin:0 auto;padding:20px 16px 48px}\n"
    "h1{font-size:24px;margin:0 0 2px;overflow-wrap:anywhere}"
    "h2{font-size:17px;margin:30px 0 10px}p{margin:4px 0}"
    ".muted,small{color:var(--i1)}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fill,"
    "minmax(150px,1fr));gap:10px;margin-top:16px}"
    ".tile{background:var(--card);border:1px solid var(--line);"
    "border-radius:8px;padding:9px 12px}.tile b{display:block;"
    "font-size:20px;font-weight:600}.tile span{color:var(--i1);"
    "font-size:13px}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,"
    "minmax(min(100%,420px),1fr));gap:12px}"
    "figure{margin:0;background:var(--card);border:1px solid var(--line);"
    "border-radius:8px;padding:8px;position:relative}"
    ".wide{overflow-x:auto;margin-bottom:12px}"
    ".wide svg{min-width:720px}svg{display:block;width:100%;height:auto}"
    "svg text{font-size:12px}\n"
    "svg path{fill:none;stroke-linejoin:round;stroke-linecap:round}"
    ".s0{stroke:var(--i0)}.s1{stroke:var(--i1)}.s2{stroke:var(--i2)}"
    ".s3{stroke:var(--i3)}.s4{stroke:var(--i4)}.s5{stroke:var(--i5)}"
    ".s6{stroke:var(--i6)}.s7{stroke:var(--i7)}.s8{stroke:var(--i8)}"
    ".s9{stroke:var(--i9)}.s10{stroke:var(--i10)}.s11{stroke:var(--i11)}"
    "svg .f0{fill:var(--i0)}svg .f1{fill:var(--i1)}svg .f2{fill:var(--i2)}"
    "svg .f3{fill:var(--i3)}svg .f4{fill:var(--i4)}svg .f5{fill:var(--i5)}"
    "svg .f6{fill:var(--i6)}svg .f7{fill:var(--i7)}svg .f8{fill:var(--i8)}"
    "svg .f9{fill:var(--i9)}svg .f10{fill:var(--i10)}"
    "svg .f11{fill:var(--i11)}\n"
    ".scroll{overflow-x:auto;background:var(--card);"
    "border:1px solid var(--line);border-radius:8px}"
    "table{border-collapse:collapse;width:100%;font-size:14px}"
    "th,td{text-align:left;padding:5px 10px;border-top:1px solid "
    "var(--line);vertical-align:top;overflow-wrap:break-word}"
    "td:not(.n),th:not(.n){min-width:12em}"
    "tr:first-child th{border-top:0;color:var(--i1);font-weight:500}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;"
    "white-space:nowrap}\n"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0;"
    "font:13px/1.45 ui-monospace,'DejaVu Sans Mono',monospace}"
    "pre i{color:var(--i1);font-style:normal}"
    "details{margin-top:10px}summary{cursor:pointer;color:var(--i1)}"
    "code{font:13px ui-monospace,'DejaVu Sans Mono',monospace}\n"
    "#tip{position:absolute;pointer-events:none;background:var(--card);"
    "border:1px solid var(--i2);border-radius:6px;padding:4px 8px;"
    "font-size:12px;white-space:pre;z-index:9;display:none}"
    "#tip.on{display:block}\n"
    "@media print{body{background:#fff}figure,.tile{break-inside:avoid}}\n";

static const char report_script[] =
    "(function(){'use strict';\n"
    "var tip=document.createElement('div');tip.id='tip';"
    "document.body.appendChild(tip);\n"
    "function points(g){var out=[],p=g.querySelector('path[stroke-width]'),"
    "all=g.querySelectorAll('path[stroke-width]'),i,k,m,n;\n"
    "for(i=0;i<all.length;i++){m=(all[i].getAttribute('d')||'')"
    ".match(/[-0-9.e+]+/g)||[];for(k=0;k+1<m.length;k+=2)"
    "out.push([+m[k],+m[k+1]])}\n"
    "if(!p){n=g.querySelectorAll('circle');for(i=0;i<n.length;i++)"
    "out.push([+n[i].getAttribute('cx'),+n[i].getAttribute('cy')])}\n"
    "return out}\n"
    "function show(v){var a=Math.abs(v);return a!==0&&(a<1e-3||a>=1e7)?"
    "v.toExponential(3):String(+v.toPrecision(5))}\n"
    "document.querySelectorAll('svg[data-frame]').forEach(function(svg){\n"
    "var f=svg.getAttribute('data-frame').split(' ').map(Number),cache=null;\n"
    "function hide(){tip.className=''}\n"
    "svg.addEventListener('pointerleave',hide);\n"
    "svg.addEventListener('pointermove',function(e){\n"
    "var box=svg.getBoundingClientRect(),"
    "x=(e.clientX-box.left)/box.width*svg.viewBox.baseVal.width,text='';\n"
    "if(x<f[0]||x>f[1]){hide();return}\n"
    "if(!cache){cache=[];svg.querySelectorAll('g[data-n]').forEach("
    "function(g){cache.push([g.getAttribute('data-n'),points(g)])})}\n"
    "cache.forEach(function(s){var best=null,d=1e9,i,v;"
    "for(i=0;i<s[1].length;i++){v=Math.abs(s[1][i][0]-x);"
    "if(v<d){d=v;best=s[1][i]}}\n"
    "if(!best)return;\n"
    "var sx=(best[0]-f[0])/(f[1]-f[0]),sy=(f[3]-best[1])/(f[3]-f[2]);"
    "var vx=f[4]+sx*(f[5]-f[4]);"
    "var vy=f[8]?f[6]*Math.pow(f[7]/f[6],sy):f[6]+sy*(f[7]-f[6]);\n"
    "text+=(text?'\\n':'')+(s[0]?s[0]+': ':'')+show(vy)+'  at '+"
    "Math.round(vx)});\n"
    "if(!text){hide();return}\n"
    "tip.textContent=text;tip.className='on';"
    "var left=e.pageX+14;if(left+tip.offsetWidth>"
    "document.documentElement.clientWidth)left=Math.max(0,e.pageX-14-"
    "tip.offsetWidth);tip.style.left=left+'px';"
    "tip.style.top=(e.pageY+14)+'px'})})})();\n";

static void html_tile(FILE *out, const char *value, const char *what)
{
    fputs("<div class=\"tile\"><b>", out);
    canvas_escape(out, value);
    fputs("</b><span>", out);
    canvas_escape(out, what);
    fputs("</span></div>\n", out);
}

static void tile_number(FILE *out, const char *format, double value,
                        const char *what)
{
    char text[64];
    if (isnan(value))
        return;
    /* formats are those below */
    snprintf(text, sizeof text, format, value);
    html_tile(out, text, what);
}

typedef char *(*units_fn)(double value, char *text, size_t size);

static void tile_units(FILE *out, units_fn units, double value,
                       const char *what)
{
    char text[64];
    if (!isnan(value))
        html_tile(out, units(value, text, sizeof text), what);
}

static void html_tiles(const struct report *report, FILE *out)
{
    const struct run_history *run = report->runs[0];
    const struct report_figures *f = &report->figures[0];
    char text[96];
    const char *name;
    json_t *set;
    fputs("<div class=\"tiles\">\n", out);
    tile_number(out, "%.4f", f->loss, "training loss");
    snprintf(text, sizeof text, "best evaluation, step %lld",
             (long long)f->eval_best_step);
    tile_number(out, "%.4f", f->eval_best, text);
    json_object_foreach(run->sets, name, set)
    {
        snprintf(text, sizeof text, "newest evaluation of %.64s", name);
        tile_number(out, "%.4f",
                    json_number_value(json_object_get(set, "loss")), text);
    }
    tile_number(out, "%.0f", run->last_step >= 0 ? (double)run->last_step : NAN,
                "steps");
    tile_units(out, units_count, (double)run->tokens, "tokens");
    tile_units(out, units_seconds, f->wall_s, "wall time");
    tile_number(out, "%.1f %%", 100 * f->goodput, "goodput");
    tile_units(out, units_count, f->tokens_per_s, "tokens per second (median)");
    tile_number(out, "%.1f %%", 100 * f->mfu, "MFU (median)");
    tile_number(out, "%.0f", (double)run->attempt_count, "attempts");
    snprintf(text, sizeof text, "%s hours", report_device(run));
    tile_number(out, "%.4g", f->device_hours, text);
    snprintf(text, sizeof text, "cost, at %g per %s hour", report->price,
             report_device(run));
    tile_number(out, "%.4g", f->cost, text);
    tile_number(out, "%.4g kWh", f->energy_j / 3.6e6, "energy");
    tile_number(out, "%.3g", f->tokens_per_j, "tokens per joule");
    fputs("</div>\n", out);
}

static void svg_begin(FILE *out, const char *id, const char *title,
                      double width, double height, const char *more)
{
    fprintf(out,
            "<svg id=\"%s\" role=\"img\" viewBox=\"0 0 %g %g\"%s>"
            "<title>",
            id, width, height, more);
    canvas_escape(out, title);
    fputs("</title>\n", out);
}

/* data-frame: where the data lie and what they range over, by which the script
 * tells values under the pointer; the last number is 1 for a logarithmic y. */
static enum err draw_plot(const struct plot *plot, FILE *out)
{
    char more[320];
    struct plot_frame f = plot_frame(plot);
    snprintf(more, sizeof more,
             " data-frame=\"%g %g %g %g %.9g %.9g %.9g %.9g %d\"", f.left,
             f.right, f.top, f.bottom, f.x0, f.x1, f.y0, f.y1, f.log);
    fputs("<figure>", out);
    svg_begin(out, plot->id, plot->title, PLOT_WIDTH, f.height, more);
    TRY(plot_draw(plot, out));
    fputs("</svg></figure>\n", out);
    return ERR_OK;
}

typedef void (*draw_fn)(const struct report *report, FILE *out);

static void draw_wide(const struct report *report, const char *id,
                      const char *title, double height, draw_fn draw, FILE *out)
{
    fputs("<figure class=\"wide\">", out);
    svg_begin(out, id, title, REPORT_WIDE, height, "");
    draw(report, out);
    fputs("</svg></figure>\n", out);
}

static void put_names(const struct report *report, FILE *out)
{
    for (int r = 0; r < report->run_count; r++) {
        fputs(r == 0 ? "" : ", ", out);
        canvas_escape(out, report->names[r]);
    }
}

static void html_head(const struct report *report, FILE *out)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\""
          "default-src 'none'; style-src 'unsafe-inline'; script-src "
          "'unsafe-inline'; img-src data:\">\n<title>",
          out);
    put_names(report, out);
    fprintf(out,
            " - tessera report</title>\n<style>\n%s</style></head>\n"
            "<body><main>\n<h1>",
            report_style);
    put_names(report, out);
    fputs("</h1>\n", out);
}

static const char *state_of(const struct run_history *run)
{
    if (run->attempt_count == 0)
        return "nothing has started";
    const struct run_attempt *last = &run->attempts[run->attempt_count - 1];
    if (!last->ended)
        return "the last attempt has told no end: it runs, or it died";
    return last->code == 0    ? "finished"
           : last->code == 85 ? "stopped in order: it goes on where it was"
                              : "ended with an error";
}

static void html_subtitle(const struct report *report, FILE *out)
{
    for (int r = 0; r < report->run_count; r++) {
        const struct run_history *run = report->runs[r];
        fputs("<p class=\"muted\">", out);
        canvas_escape(out, run->dir);
        fprintf(out, ": %s", state_of(run));
        if (run->attempt_count > 0) {
            const struct run_attempt *last =
                &run->attempts[run->attempt_count - 1];
            fprintf(out, "; %d rank%s on %d node%s", last->ranks,
                    last->ranks == 1 ? "" : "s", last->nodes,
                    last->nodes == 1 ? "" : "s");
            fputs(last->devices[0] != '\0' ? ", " : "", out);
            canvas_escape(out, last->devices);
        }
        fputs("</p>\n", out);
    }
}

static enum err html_page(const struct report *report, FILE *out)
{
    html_head(report, out);
    html_subtitle(report, out);
    if (report->run_count == 1)
        html_tiles(report, out);
    else
        report_tables_figures(report, out);
    fputs("<h2>Training</h2>\n<div class=\"plots\">\n", out);
    for (int i = 0; i < report->plot_count; i++)
        TRY(draw_plot(&report->plots[i], out));
    fputs("</div>\n", out);
    if (report->plot_count == 0)
        fputs("<p>No step is recorded yet.</p>\n", out);
    fputs("<h2>Attempts, checkpoints and nodes</h2>\n", out);
    draw_wide(report, "timeline", "Attempts, checkpoints and nodes over time",
              report_time_height(report), report_time_draw, out);
    report_tables_attempts(report, out);
    report_tables_events(report, out);
    fputs("<h2>Where the time went</h2>\n", out);
    draw_wide(report, "goodput", "Goodput, and what time was lost to",
              report_time_goodput_height(report), report_time_goodput_draw,
              out);
    report_tables_goodput(report, out);
    report_texts_tasks(report, out);
    report_texts_samples(report, out);
    report_tables_settings(report, out);
    report_texts_notes(report, out);
    fprintf(out, "</main>\n<script>\n%s</script>\n</body></html>\n",
            report_script);
    return ERR_OK;
}

/* Written in memory first: a page is either whole or not there. */
enum err report_html(const struct report *report, const char *path)
{
    assert(report->run_count > 0);
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    rc = html_page(report, out);
    if (fclose(out) != 0 && rc == ERR_OK)
        rc = err_set(ERR_MEMORY, "out of memory");
    if (rc == ERR_OK)
        rc = fsio_write_atomic(path, text, bytes);
    free(text);
    return rc;
}
