/* What Jinja 3.1, with the settings of the Hugging Face library, makes of the five
 * messages of tests/test_chat.c on 2025-11-23, without tools. */
#pragma once

#define CHAT_CASES                                                             \
    { "{% macro f(a, b='x') %}{{ a ~ b }},{% endmacro %}{{ f(1) }}{{ f('m', "  \
      "b=2) }}{{ f(b=3, a=4) }}{{ f() }}",                                     \
      "1x,m2,43,x," },                                                         \
        { "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% "  \
          "endmacro %}{{ f(3) | length }}{{ f(5) }}",                          \
          "354321" },                                                          \
        { "{% set x = 1 %}{% macro f() %}{{ x }}{{ m }}{% endmacro %}{% for "  \
          "m in messages %}{% set x = 2 %}{{ f() }}{% endfor %}",              \
          "11111" },                                                           \
        { "{% macro f(m) %}{{ m | groupby('a') | sum }}{{ m.x.y.z() }}{{ 1.5 " \
          "** 2 }}{% endmacro %}ok",                                           \
          "ok" },                                                              \
        { "{% if tools %}{% for k, v in tools | items %}{{ 1.5 }}{{ v | "      \
          "wordcount }}{% endfor %}{% endif %}ok",                             \
          "ok" },                                                              \
        { "{% for k, v in {'a': 1, 'b': [2, none]} | items %}{{ k }}={{ v "    \
          "}};{% endfor %}",                                                   \
          "a=1;b=[2, None];" },                                                \
        { "{% for k, v in messages[0].items() %}{{ k ~ loop.index }}{% "       \
          "endfor %}{% for (a, b) in [(1, 2), [3, 4]] %}{{ a + b }}{% endfor " \
          "%}",                                                                \
          "role1content237" },                                                 \
        { "{% set b %} x {{ 1 }}{% endset %}{{ b }}|{% set c | trim | upper "  \
          "%} y {% endset %}{{ c }}{% filter upper %}q{{ c }}{% endfilter %}", \
          " x 1|YQY" },                                                        \
        { "{% set d = {'a': 'b', \"k\": {'x': 1}} %}{{ d.a }}{{ d['k'].x "     \
          "}}{{ d.get('z', 9) }}{{ 'a' in d }}{{ d | length }}{{ d }}",        \
          "b19True2{'a': 'b', 'k': {'x': 1}}" },                               \
        { "{% set d = {1: 'x', 2: 'y'} %}{{ d[2] }}{{ d.get(1) }}{{ 2 in d "   \
          "}}{% for k, v in d | dictsort %}{{ k + 1 }}{{ v }}{% endfor %}{{ "  \
          "d | tojson }}{{ d }}",                                              \
          "yxTrue2x3y{\"1\": \"x\", \"2\": \"y\"}{1: 'x', 2: 'y'}" },          \
        { "{{ messages | selectattr('role', 'equalto', 'user') | "             \
          "map(attribute='content') | map('trim') | join('+') }}",             \
          "Hi+Bye" },                                                          \
        { "{{ messages | rejectattr('role', 'in', ['user', 'system']) | list " \
          "| length }}{{ [1, 2, 3] | select('odd') | list }}{{ ['', 'a'] | "   \
          "reject('equalto', '') | first }}{{ none | selectattr('a') | list "  \
          "| length }}",                                                       \
          "2[1, 3]a0" },                                                       \
        { "{{ 'xxaxbx'.strip('x') ~ '\\n\\nq\\n'.strip('\\n') ~ '\xc3\xa9"     \
          "a\xc3\xa9'.lstrip('\xc3\xa9') ~ 'ab\\t '.rstrip() ~ "               \
          "'ab'.rstrip('ba') }}|{{ '  a' | trim }}",                           \
          "axbqa\xc3\xa9"                                                      \
          "ab|a" },                                                            \
        { "{{ 'a  b c'.split() }}{{ 'a,b,c'.split(',', 1) }}{{ "               \
          "'a</t>b</t>c'.split('</t>')[-1] }}{{ 'x'.split('y') | last }}",     \
          "['a', 'b', 'c']['a', 'b,c']cx" },                                   \
        { "{{ strftime_now('%d %b %Y') }}{{ strftime_now is defined }}{{ "     \
          "range is defined }}{{ nothing_here is defined }}",                  \
          "23 Nov 2025TrueTrueFalse" },                                        \
        { "{% generation %}a{% for m in messages %}{{ m.role[0] }}{% endfor "  \
          "%}{% endgeneration %}b",                                            \
          "asuauab" },                                                         \
        { "{% for m in messages %}{% if m.role == 'assistant' %}{% continue "  \
          "%}{% endif %}{% if loop.index > 3 %}{% break %}{% endif %}{{ "      \
          "m.role }}{% else %}none{% endfor %}{% for x in [] %}y{% else "      \
          "%}none{% endfor %}",                                                \
          "systemusernone" },                                                  \
        { "{{ 'a\xc3\xa9"                                                      \
          "b'[1] }}{{ 'a\xc3\xa9"                                              \
          "b'[::-1] }}{{ 'abcdef'[1:-1:2] }}{{ messages[1:3] | length }}{{ "   \
          "'abc'[-2:] }}{{ [1,2,3,4][::2] }}",                                 \
          "\xc3\xa9"                                                           \
          "b\xc3\xa9"                                                          \
          "abd2bc[1, 3]" },                                                    \
        { "{{ {'b': [1, 'x\"\\n\\t\xc3\xa9', true, none], 'a': {}} | tojson "  \
          "}}{{ [] | tojson }}{{ [1, {'a': 2}] | tojson(indent=2) }}{{ '<' | " \
          "tojson(ensure_ascii=False) }}",                                     \
          "{\"b\": [1, \"x\\\"\\n\\t\xc3\xa9\", true, null], \"a\": {}}[][\n " \
          " 1,\n  {\n    \"a\": 2\n  }\n]\"<\"" },                             \
        { "{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'c'] | sort(reverse=true) | "   \
          "join }}{{ [1, 2, 1] | unique | list }}{{ 'abc' | reverse }}{{ [1, " \
          "2] | reverse | list }}{{ messages | sort(attribute='role') | "      \
          "map(attribute='role') | join(' ') }}",                              \
          "[1, 2, 3]cbA[1, 2]cba[2, 1]assistant assistant system user user" }, \
        { "{{ [1, 2] + [3] }}{{ (1, 2) }}{{ (1,) }}{{ 'ab' * 3 }}{{ [1, [2]] " \
          "== [1, [2]] }}{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }}{{ 'a' < "  \
          "'b' }}{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 2 > 1 == 1 }}",              \
          "[1, 2, 3](1, 2)(1,)abababTrueTrueTrueTrueFalseTrue" },              \
        { "{{ 9223372036854775806 % 9223372036854775807 }},{{ -7 % 3 }},{{ 7 " \
          "% -3 }},{{ -6 % 3 }},{{ 5 // -2 }}",                                \
          "9223372036854775806,2,-2,0,-3" },                                   \
        { "{{ 1 is odd }}{{ 4 is divisibleby 2 }}{{ 4 is divisibleby(3) }}{{ " \
          "'a' is in ['a'] }}{{ 1 is eq 1 }}{{ 2 is gt(1) }}{{ x is "          \
          "undefined }}{{ [] is sequence }}{{ {} is mapping }}{{ 'x' is not "  \
          "none and 1 is number }}",                                           \
          "TrueTrueFalseTrueTrueTrueTrueTrueTrueTrue" },                       \
        { "{{ 'hello wORLD'.title() }}{{ 'hELLO' | capitalize }}{{ "           \
          "'abc'.find('c') }}{{ 'abc'.find('x') }}{{ '{}-{}{{'.format(1, "     \
          "'b') }}{{ '12' | int + 1 }}{{ 'x' | int(7) }}",                     \
          "Hello WorldHello2-11-b{137" },                                      \
        { "{{ 'a\\nb\\n\\nc' | indent(2) }}|{{ 'a\\nb' | indent(width=3, "     \
          "first=true) }}|{{ x | default('d') }}{{ '' | default('e', true) "   \
          "}}{{ none | default(boolean=true, default_value='f') }}",           \
          "a\n  b\n\n  c|   a\n   b|def" },                                    \
        { "{{ range(3) | list }}{{ range(5, 1, -2) | join(',') }}{{ [3, 9] | " \
          "max }}{{ [3, 9] | min }}{{ 'a' 'b' ~ 'c' }}{{ dict(a=1).a }}",      \
          "[0, 1, 2]5,393abc1" },                                              \
        { "{% set ns = namespace(l=[], d={}) %}{% for m in messages %}{% set " \
          "ns.l = ns.l + [m.role] %}{% endfor %}{{ ns.l }}{{ ns.l[-1] }}",     \
          "['system', 'user', 'assistant', 'user', 'assistant']assistant" },   \
        { "{{ '\\s\\d' }}{{ tools is none }}{{ documents is defined }}{{ 'a' " \
          "if 0 }}{{ messages is iterable and messages is not string }}",      \
          "\\s\\dTrueTrueTrue" },                                              \
        { "{% macro a() %}{% set z = 5 %}{{ z }}{% endmacro %}{% macro b() "   \
          "%}[{{ a() }}]{% endmacro %}{{ b() }}{{ z is defined }}",            \
          "[5]False" },                                                        \
        { "{% for a in [1, 2] %}{% for b in [1, 2, 3] %}{% if b == 2 %}{% "    \
          "break %}{% endif %}{{ a ~ b }}{% endfor %};{% endfor %}",           \
          "11;21;" },                                                          \
        { "{% for m in messages if m.role != 'user' %}{{ loop.length }}{{ "    \
          "m.role }}{% endfor %}{% for c in 'a\xc3\xb1' %}{{ c }}.{% endfor "  \
          "%}{% for k in {'p': 1} %}{{ k }}{% endfor %}",                      \
          "3system3assistant3assistanta.\xc3\xb1.p" },                         \
        { "{{ messages[0].content.strip() in 'Be brief. x' }}{{ ['a', 'b'] | " \
          "join(', ') }}{{ {'a': 1}.keys() | list }}{{ {'a': 1}.values() | "   \
          "list }}{{ {'a': 1}.items() | list }}{{ \"it's\" | list | length "   \
          "}}{{ [\"it's\", 'q\"'] }}",                                         \
          "Truea, b['a'][1][('a', 1)]4[\"it's\", 'q\"']" },
