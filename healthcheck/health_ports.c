/* Ports of InfiniBand and RoCE: what the kernel says of each link.
 *
 * A port without a cable is no fault, and most nodes have some. So a port is judged by
 * itself at earlier looks: one that was active since the machine's start and is not now,
 * is slower now, or is gone with its card, has lost something. What it had before the
 * start is worth a warning only, since somebody may have moved a cable meanwhile; the
 * site can set how many must be active and how fast. Ports of one kind of card are
 * compared as well, for a warning: storage may hang on a slower switch.
 *
 * Virtual functions are left out: they come and go with what uses them. None of this is
 * in a user's hand. The files cost a question to the card's firmware; a card that does
 * not answer is a check that hangs. */
#include "healthcheck/health_checks.h"

#include <string.h>
#include <unistd.h>

#include "healthcheck/health_past.h"
#include "src/base/sysfile.h"

#define PORT_MAX 128

struct port {
    char name[40];  /* "mlx5_0/1" */
    char kind[40];  /* of card and link; "": not known */
    char state[40]; /* "DOWN, Polling" */
    bool active;
    bool waits;    /* the link is up, but nobody has given it an address */
    double gbps;   /* 0: not known */
    double downs;  /* how often the link was down; -1: not known */
    double errors; /* of symbols and their like */
};

/* After the number: "4: ACTIVE". */
static const char *port_word(const char *text)
{
    const char *colon = strchr(text, ':');
    return colon != NULL ? colon + 1 + strspn(colon + 1, " ") : text;
}

static void read_infiniband(const char *path, struct port *port)
{
    static const char *const errors[] = { "symbol_error", "link_error_recovery",
                                          "local_link_integrity_errors" };
    port->downs = sysfile_number("%s/counters/link_downed", path);
    port->errors = 0;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        double count = sysfile_number("%s/counters/%s", path, errors[i]);
        port->errors += count > 0 ? count : 0;
    }
}

/* The net device knows more of an Ethernet link than the port that is made of it.
 * False: it is a part of another one, a bond or a virtual machine's, which lives on
 * without it; clouds take such cards away for minutes. */
static bool read_ethernet(const char *root, const char *path, struct port *port)
{
    char net[64], master[1024];
    port->downs = port->errors = -1;
    if (!sysfile_text(net, sizeof net, "%s/gid_attrs/ndevs/0", path))
        return true;
    snprintf(master, sizeof master, "%.900s/sys/class/net/%s/master", root,
             net);
    if (access(master, F_OK) == 0)
        return false;
    double carrier = sysfile_number("%s/sys/class/net/%s/carrier", root, net);
    double mbps = sysfile_number("%s/sys/class/net/%s/speed", root, net);
    port->active = port->active && carrier != 0;
    if (mbps > 0)
        port->gbps = mbps / 1000;
    port->downs =
        sysfile_number("%s/sys/class/net/%s/carrier_down_count", root, net);
    port->errors = sysfile_number(
        "%s/sys/class/net/%s/statistics/rx_crc_errors", root, net);
    return true;
}

/* False: it is not to be looked at. `path` is ".../DEVICE/ports/NUMBER". */
static bool read_port(const struct health_env *env, const char *path,
                      struct port *port)
{
    char card[1024], function[1100], text[64], physical[64];
    snprintf(card, sizeof card, "%s", path);
    for (int up = 0; up < 2; up++)
        *strrchr(card, '/') = '\0';
    const char *device = sysfile_name(card);
    snprintf(function, sizeof function, "%s/device/physfn", card);
    memset(port, 0, sizeof *port);
    snprintf(port->name, sizeof port->name, "%.30s/%.8s", device,
             sysfile_name(path));
    if (health_listed(env->limits.ports_skip, device) ||
        access(function, F_OK) == 0 ||
        !sysfile_text(text, sizeof text, "%s/state", path))
        return false;
    sysfile_text(physical, sizeof physical, "%s/phys_state", path);
    snprintf(port->state, sizeof port->state, "%.15s, %.20s", port_word(text),
             port_word(physical));
    port->active = strcmp(port_word(text), "ACTIVE") == 0;
    double gbps = sysfile_number("%s/rate", path);
    port->gbps = gbps > 0 ? gbps : 0;
    sysfile_text(text, sizeof text, "%s/link_layer", path);
    bool ethernet = strcmp(text, "Ethernet") == 0;
    port->waits = !ethernet && strcmp(port_word(physical), "LinkUp") == 0;
    if (sysfile_text(text, sizeof text, "%s/board_id", card) ||
        sysfile_text(text, sizeof text, "%s/hca_type", card))
        snprintf(port->kind, sizeof port->kind, "%.38s%c", text,
                 ethernet ? 'E' : 'I');
    if (ethernet)
        return read_ethernet(env->root, path, port);
    read_infiniband(path, port);
    return true;
}

/* The rate of the fastest of the same kind of card. */
static double kind_gbps(const struct port *ports, int count,
                        const struct port *port)
{
    double most = 0;
    for (int i = 0; i < count; i++)
        if (ports[i].active && ports[i].gbps > most &&
            ports[i].kind[0] != '\0' && strcmp(ports[i].kind, port->kind) == 0)
            most = ports[i].gbps;
    return most;
}

static void judge_active(const struct health_env *env, const struct port *port,
                         double most, double before, double others,
                         struct health_result *out)
{
    double least = env->limits.ports_rate_min_gbps;
    if (port->gbps <= 0)
        return;
    if (port->gbps < least || port->gbps < most)
        health_find(out, HEALTH_BAD, "PORT_RATE", "%s: %g of %g Gb/s",
                    port->name, port->gbps, least > most ? least : most);
    else if (port->gbps < before || port->gbps < others)
        health_find(out, HEALTH_WARN, "PORT_SLOWER", "%s: %g of %g Gb/s",
                    port->name, port->gbps, before > others ? before : others);
}

static void judge_idle(const struct port *port, double most, double before,
                       struct health_result *out)
{
    if (most > 0)
        health_find(out, HEALTH_BAD, "PORT_DOWN", "%s is %s, and was active",
                    port->name, port->state);
    else if (before > 0)
        health_find(out, HEALTH_WARN, "PORT_LOST",
                    "%s is %s, before the start active", port->name,
                    port->state);
    else if (port->waits)
        health_find(out, HEALTH_WARN, "PORT_INIT",
                    "%s is %s; is there a subnet manager?", port->name,
                    port->state);
}

static void judge_counters(const struct health_env *env,
                           const struct port *port, struct health_past *past,
                           struct health_result *out)
{
    char key[64];
    double per_hour, most = env->limits.ports_flaps_max;
    snprintf(key, sizeof key, "%s.downs", port->name);
    double downs = health_past_growth(past, key, port->downs, &per_hour);
    if (downs > 0)
        health_find(out, most > 0 && downs >= most ? HEALTH_BAD : HEALTH_WARN,
                    most > 0 && downs >= most ? "PORT_FLAPS" : "PORT_FLAPPED",
                    "%s was down %g times, it is %s", port->name, downs,
                    port->state);
    snprintf(key, sizeof key, "%s.errors", port->name);
    (void)health_past_growth(past, key, port->errors, &per_hour);
    if (per_hour > env->limits.ports_errors_per_hour)
        health_find(out, HEALTH_WARN, "PORT_ERRORS", "%s: %.0f errors an hour",
                    port->name, per_hour);
}

/* A card that fell off the bus takes its ports along. */
static void judge_gone(const struct health_env *env,
                       const struct health_past *past,
                       struct health_result *out)
{
    double most;
    const char *name;
    for (int at = 0; (name = health_past_gone(past, &at, &most)) != NULL;) {
        char card[64];
        snprintf(card, sizeof card, "%.*s", (int)strcspn(name, "/"), name);
        if (health_listed(env->limits.ports_skip, card))
            continue;
        if (most > 0)
            health_find(out, HEALTH_BAD, "PORT_GONE",
                        "%s is not there, and was active", name);
        else
            health_find(out, HEALTH_WARN, "PORT_LOST",
                        "%s is not there, before the start active", name);
    }
}

enum err health_ports(const struct health_env *env, struct health_result *out)
{
    struct port ports[PORT_MAX];
    struct health_past past;
    glob_t found;
    int count = 0;
    double before;
    snprintf(out->unit, sizeof out->unit, "ports");
    sysfile_find(env->root, "/sys/class/infiniband/*/ports/*", &found);
    for (size_t i = 0; i < found.gl_pathc && count < PORT_MAX; i++)
        count += read_port(env, found.gl_pathv[i], &ports[count]);
    globfree(&found);
    health_past_open(env, "ports", &past);
    for (int i = 0; i < count; i++) {
        const struct port *port = &ports[i];
        double gbps = !port->active ? 0 : port->gbps > 0 ? port->gbps : 1;
        double most = health_past_most(&past, port->name, gbps, &before);
        out->value += port->active;
        if (port->active)
            judge_active(env, port, most, before, kind_gbps(ports, count, port),
                         out);
        else
            judge_idle(port, most, before, out);
        judge_counters(env, port, &past, out);
    }
    judge_gone(env, &past, out);
    health_past_close(&past);
    out->limit = env->limits.ports_active;
    if (out->value < out->limit)
        health_find(out, HEALTH_BAD, "PORT_MISSING", "too few are active");
    return ERR_OK;
}
