#!/usr/bin/env python3
"""Writes tests/language/text/data/templates/golden.json: small templates with the output of Python's jinja2.

    make_template_golden.py [OUTPUT]

The environment is the same as in transformers.apply_chat_template. The clock is fixed at NOW_S, in UTC.
"""

import datetime
import json
import os
import sys
import time

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW_S = 1753362793


class Generation(jinja2.ext.Extension):
    """{% generation %}: the text of its body, rendered as a call block."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.datetime.fromtimestamp(NOW_S).strftime(format)
    return env


DATA = {
    "t": True,
    "f": False,
    "n": None,
    "i": 7,
    "neg": -7,
    "x": 2.5,
    "s": "Hello World",
    "e": "",
    "u": "naïve Straße 你好 😀",
    "l": [3, 1, 2],
    "names": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": [1, "two", None], "items": 5, "C": {"k": "v"}},
    "m": [
        {"role": "user", "content": "hi", "k": 2},
        {"role": "assistant", "content": "<yo> & 'x'", "k": 1},
        {"role": "user", "content": None},
    ],
    "lines": "one\n two\n\nthree \n",
    "html": "<a href=\"x\">'&'</a>",
    "empty": [],
    "num": "42.9",
    "tree": [{"n": "a", "c": [{"n": "b", "c": []}, {"n": "c", "c": [{"n": "d", "c": []}]}]}],
}

SNIPPETS = r"""
{{ s }}|{{ n }}|{{ t }}|{{ f }}|{{ i }}|{{ x }}|{{ l }}|{{ d }}|{{ missing }}|{{ u }}
{{ [1, 'a', "it's", 'q"', none, true, 1.0, (1,), (), (1, 2), {}, {'a': 1}, missing] }}
{{ 'tab\t nl\n \\ \x41 \u00e9 \U0001f600 \q \'' }}{{ "a" 'b' }}{{ ['\n', '\x07', '\u200d', 'é', '\x7f', '\u00a0'] }}
{{ 1e20 }} {{ 1e16 }} {{ 1e15 }} {{ 123456789.125 }} {{ 1e-4 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ -0.0 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e3 }} {{ 100.0 }}
{{ 7 + 2 }} {{ 7 - 2 }} {{ 7 * 2 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ +5 }} {{ - i }}
{{ 1 / 4 }} {{ true + true }} {{ 6 / 3 }} {{ 0.0 / 5 }} {{ 3 * 1.5 }}
{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ (1, 2) + (3,) }} {{ [1] + l }} {{ 'a' ~ 1 ~ none ~ [1] ~ missing }}
{{ 1 == 1.0 }} {{ 1 == true }} {{ '1' == 1 }} {{ [1, 2] == [1, 2] }} {{ (1,) == [1] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ none == missing }} {{ missing == nope }} {{ 1 != 2 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'Z' < 'a' }} {{ 2 >= 2.0 }} {{ 1 < 2 == true }}
{{ 'ell' in s }} {{ 3 in l }} {{ 9 not in l }} {{ 'a' in d }} {{ 1 in d }} {{ none in [none] }} {{ 'x' in missing }} {{ 2 in range(5) }} {{ not 1 in l }}
{{ t and s }} {{ f and s }} {{ e or 'dflt' }} {{ n or missing or 0 }} {{ not e }} {{ not not s }} {{ t and not f or f }}
{{ 'yes' if t else 'no' }} {{ 'yes' if f }}| {{ ('x' if f) is undefined }} {{ 'a' if f else 'b' if f else 'c' }} {{ ('x' if f) is defined }}
{{ d.a }} {{ d['a'] }} {{ d['items'] }} {{ d.C.k }} {{ d.zzz }}| {{ d['zzz'] is defined }} {{ l[0] }} {{ l[-1] }} {{ l[9] }}| {{ s[0] }} {{ u[-1] }} {{ l.0 }} {{ m[0].role }} {{ m[0]['role'] }} {{ d.get('q', 5) }} {{ d.get('q') }}
{{ s[1:4] }} {{ s[:-3] }} {{ s[::-1] }} {{ u[-2:] }} {{ u[::2] }} {{ l[1:] }} {{ l[::-1] }} {{ l[5:] }} {{ l[-2:] }} {{ (1, 2, 3)[:2] }} {{ s[10:2:-2] }} {{ l[:0] }} {{ s[-100:100] }} {{ l[3:0:-1] }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ 'hELLO wORLD'.capitalize() }} {{ u.upper() }} {{ 'ΑΣ'.lower() }} {{ 'ﬁne ǆ'.title() }} {{ 'ß'.capitalize() }}
{{ '  a b '.strip() }}| {{ '  a b '.lstrip() }}| {{ '  a b '.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'abcba'.lstrip('ba') }} {{ '\u00a0\u3000x\u2028'.strip() }}| {{ 'éxé'.strip('é') }} {{ ' a '.strip(none) }}|
{{ 'a,b,,c'.split(',') }} {{ 'a,b,,c'.split(',', 1) }} {{ ' a  b c '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ 'a--b'.split('--') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('b', maxsplit=0) }} {{ ' a b '.split(none, 0) }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\r\nb\x0bc\u2028d\n'.splitlines() }} {{ ''.splitlines() }}
{{ s.startswith('He') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('ld') }} {{ s.startswith('') }}
{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ u.find('好') }} {{ s.count('l') }} {{ s.count('') }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('', '-', 2) }} {{ 'é你'.replace('', '.') }} {{ ', '.join(['a', 'b']) }} {{ ''.join([]) }} {{ '-'.join('abc') }}
{{ '12'.isdigit() }} {{ '²'.isdigit() }}
{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'a.py'.removesuffix('.py') }}
{{ d.keys() }} {{ d.values() }} {{ {'a': 1}.items() }} {{ {'a': 1}.items() | list }} {{ d.keys() | list }} {{ d.values() | length }} {{ d.items() is sequence }} {{ 'b' in d.keys() }}
{{ '{} {}'.format('a', 1) }} {{ '{0}{1}{0}'.format('x', 'y') }} {{ '{{}}'.format() }}
{{ '  a ' | trim }}| {{ 'xax' | trim('x') }} {{ 5 | trim }} {{ l | length }} {{ s | count }} {{ u | length }} {{ d | length }} {{ missing | length }} {{ l | first }} {{ l | last }} {{ empty | first }}| {{ s | first }} {{ u | last }} {{ d | first }} {{ range(3) | last }}
{{ l | join }} {{ l | join(', ') }} {{ m | join('|', attribute='role') }} {{ [1, none, 'x', missing] | join('-') }} {{ 'abc' | join('.') }} {{ d | join }}
{{ s | lower }} {{ s | upper }} {{ 'hello wORLD-foo (bar) [x] {y} <z>' | title }} {{ 'hELLO' | capitalize }} {{ 5 | upper }} {{ none | upper }} {{ "it's" | title }} {{ 'a\tb' | title }}
{{ s | replace('o', '0') }} {{ s | replace('o', '0', 1) }} {{ 55 | replace(5, 6) }} {{ s | replace('l', '') }} {{ 'aaa' | replace('a', 'b', count=2) }}
{{ d | tojson }} {{ u | tojson }} {{ u | tojson(ensure_ascii=true) }} {{ [1.0, 1e20, none, true, '\x01\n"\\/', '\x7f'] | tojson }} {{ {1: 'a', none: 2, true: 3, 1.5: 4} | tojson }} {{ html | tojson }} {{ (1, 2) | tojson }} {{ {} | tojson(indent=2) }} {{ '\x7fé' | tojson(ensure_ascii=true) }}
{{ d | tojson(indent=2) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ [[], {}, [1, [2]]] | tojson(indent=4) }} {{ d | tojson(indent='\t') }} {{ d | tojson(indent=0) }}
{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %} {{ missing | items | list }} {{ 'abc' | list }} {{ d | list }} {{ d | dictsort }} {{ d | dictsort(true) }} {{ {'a': 2, 'b': 1} | dictsort(by='value') }} {{ {'a': 2, 'b': 1} | dictsort(reverse=true) }}
{{ m | map(attribute='role') | list }} {{ names | map('upper') | list }} {{ ['a-b', 'c'] | map('replace', '-', '+') | join(' ') }} {{ m | map(attribute='k', default=0) | list }} {{ tree | map(attribute='c.0.n') | list }} {{ [[1, 2], [3]] | map('first') | list }} {{ l | map('string') | list }} {{ missing | map('upper') | list }}
{{ [0, 1, '', 'a', none] | select | list }} {{ [0, 1, none] | reject | list }} {{ l | select('odd') | list }} {{ l | reject('gt', 1) | list }} {{ m | selectattr('content') | map(attribute='content') | list }} {{ m | selectattr('role', 'equalto', 'user') | list | length }} {{ m | rejectattr('role', 'in', ['user']) | list }} {{ m | selectattr('k', 'defined') | list | length }} {{ m | selectattr('content', 'none') | list }}
{% if empty | select %}truthy generator{% endif %} {% set g = l | map('string') %}{{ g | join }}|{{ g | join }} {{ (l | select('odd')) is iterable }} {{ (l | select('odd')) is sequence }} {{ (l | select('odd'))[0] is defined }}
{{ l | sort }} {{ names | sort }} {{ names | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ m[:2] | sort(attribute='k') | map(attribute='role') | list }} {{ [{'a': 1, 'b': 2}, {'a': 1, 'b': 1}] | sort(attribute='a,b') }} {{ 'cab' | sort }}
{{ ['a', 'A', 'b', 'a'] | unique | list }} {{ ['a', 'A'] | unique(case_sensitive=true) | list }} {{ m | unique(attribute='role') | list | length }} {{ l | reverse | list }} {{ s | reverse }} {{ d | reverse | list }} {{ l | min }} {{ names | max }} {{ empty | min }}| {{ m[:2] | max(attribute='k') }}
{{ 42 | string + '!' }} {{ num | int }} {{ 'zz' | int }} {{ 'zz' | int(7) }} {{ ' 42 ' | int }} {{ '-42' | int }} {{ '+1' | int }} {{ '4__2' | int(3) }} {{ '42_' | int(3) }} {{ '' | int(3) }} {{ '-' | int(3) }} {{ '1_000' | int }} {{ 3.9 | int }} {{ -3.9 | int }} {{ none | int }} {{ true | int }} {{ num | float }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ '1e3' | float }} {{ '-inf' | float }} {{ '.5' | float }} {{ '1e999' | int(5) }}
{{ lines | indent }}| {{ lines | indent(2, true) }}| {{ lines | indent(2, first=true, blank=true) }}| {{ 'a\nb' | indent('> ') }} {{ '' | indent }}|
{{ html | e }} {{ html | escape }} {{ html | safe }} {{ (html | e) | e }} {{ html | safe | e }} {{ '<' | safe + '<' }} {{ '<' + ('<' | safe) }} {{ ('<' | safe) ~ '<' }} {{ ['<' | safe] }} {{ ('a' | safe).upper() + '<' }} {{ (', ' | safe).join(['<', 'b']) }} {{ ('x' | safe).replace('x', '<') }} {{ ('<' | safe) is string }} {{ ('< ' | safe | trim) + '<' }} {{ ('<' | safe)[0] + '<' }} {{ ('<' | safe) * 2 + '<' }}
{{ missing | default('d') }} {{ n | default('d') }} {{ e | default('d', true) }} {{ e | d('x', boolean=true) }} {{ missing | default }}| {{ d.q | default([]) }}
{{ 1 is defined }} {{ missing is undefined }} {{ n is none }} {{ s is string }} {{ i is number }} {{ t is number }} {{ t is integer }} {{ i is integer }} {{ x is float }} {{ t is boolean }} {{ t is true }} {{ f is false }} {{ 1 is true }} {{ d is mapping }} {{ l is mapping }} {{ s is iterable }} {{ i is iterable }} {{ missing is iterable }} {{ l is sequence }} {{ d is sequence }} {{ i is sequence }} {{ missing is sequence }}
{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 1 is ge 2 }} {{ 1 is sameas 1 }} {{ n is sameas none }} {{ 1 is in [1] }} {{ s is not none }} {{ not s is none }} {{ 5 is not divisibleby 5 or t }} {{ 2 is greaterthan 1 }} {{ 'x' is equalto 'x' }}
{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem }} {% endfor %}
{% for x in [] %}x{% else %}none{% endfor %} {% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% else %}none{% endfor %} {% for a, b in [(1, 2), [3, 4]] %}{{ a + b }} {% endfor %} {% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for c in 'añ' %}[{{ c }}]{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for x in missing %}x{% else %}e{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% else %}no{% endfor %} {% for x in l %}{% break %}{% else %}else after break{% endfor %} {% for x in l %}{% continue %}{% else %}else after continue{% endfor %} {% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }},{% endfor %}{% endfor %}
{% for x in l %}{% set y = x %}{{ y }}{% endfor %}{{ y }}|{% set q = 1 %}{% for x in l %}{{ q }}{% set q = q + 1 %}{{ q }} {% endfor %}{{ q }} {% if t %}{% set r = 5 %}{% endif %}{{ r }} {% for s in l %}{% endfor %}{{ s }}
{% set ns = namespace(a=1, b=[]) %}{% for x in l %}{% set ns.a = ns.a + x %}{% set ns.b = ns.b + [x] %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns['a'] }} {{ ns.zzz is defined }} {% set ns.c = 5 %}{{ ns.c }} {% set n2 = namespace({'k': 1}, j=2) %}{{ n2.k }}{{ n2.j }} {{ ns is mapping }} {{ ns is iterable }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (a, b) = (b, a) %}{{ a }}{{ b }} {% set t3 = 1, %}{{ t3 }} {% set ns = namespace() %}{% set ns.x, y = 1, 2 %}{{ ns.x }}{{ y }}
{% set x %}  block {{ i }} {% endset %}[{{ x }}] {% set y | upper | trim %} abc {% endset %}[{{ y }}] {% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b') | upper %}aaa{% endfilter %}
{% macro f(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 2) }} {{ f(1, c=3) }} {{ f(b=1) }} {{ f(*[1, 2], **{'c': 3}) }}
{% macro box(title) %}<{{ title }}>{{ caller('x', k=2) }}</>{% endmacro %}{% call(a, k=1) box('T') %}{{ a }}{{ k }}{{ i }}{% endcall %} {% macro g() %}{{ caller is defined }}{{ caller() if caller }}{% endmacro %}{{ g() }}{% call g() %}in{% endcall %}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% endmacro %}{{ fact(10) }} {% macro later() %}{{ defined_later }}{% endmacro %}{% set defined_later = 'L' %}{{ later() }} {% macro sets() %}{% set i = 99 %}{{ i }}{% endmacro %}{{ sets() }}{{ i }}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b!{% endmacro %}{{ a() }} {% for x in [1, 2] %}{% macro inner() %}{{ x }}{{ loop.index }}{% endmacro %}{{ inner() }}{% endfor %} {% set fn = a %}{{ fn() }} {% set table = {'m': b} %}{{ table.m() }} {{ table['m']() }}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}| {% generation %}gen {{ i }}{% set inside = 1 %}{% endgeneration %}{{ inside is defined }} {% raw %}{{ raw }} {% x %}{% endraw %} {# comment {{ x }} #}.
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ range(3) == range(3) }} {{ range(10)[2:8:3] | list }} {{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('p', 1)]) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S') }} {{ strftime_now('%d %b %Y, %A %B %j %y %p %I %f %% %z') }}|
{{ {'a': 1, 'a': 2} }} {{ {1: 'i', 1.0: 'f', true: 'b'} }} {{ {(1, 2): 'tuple'}[(1, 2)] }} {{ {'a': 1}['a'] }} {{ {none: 1}[none] }} {{ [1, [2, [3]]][1][1][0] }} {{ ({'a': {'b': [10, 20]}}).a.b[-1] }}
{{ '😀a'[0] }} {{ '😀a' | length }} {{ '😀a'[1:] }} {{ 'e\u0301' | length }} {{ '你好世界'[1:3] }} {{ '你好'.find('好') }} {{ 'a😀b'.split('😀') }} {{ '😀' in 'a😀' }} {{ ['😀'] }} {{ '\\é' }}
{{ i.__class__ }}| {{ s.__class__ is defined }} {{ l.append }}| {{ d.pop is defined }} {{ (''.__class__.__mro__ is defined) if f else 'skipped' }} {{ 1.e5 }}|
{{ [1, 2, 3] | tojson | length }} {{ (d | items | list)[0][0] }} {{ (names | map('lower') | list)[1:] }} {{ m | selectattr('role', 'ne', 'user') | map(attribute='content') | first }} {{ ([1, 2] + [3]) | length > 2 }} {{ -l[0] }} {{ not s | length > 3 }} {{ 1 ~ 2 * 3 }} {{ 'a' ~ (1 + 2) }}
{{ none | string }} {{ [] | string }} {{ 1.0 | string }} {{ true | lower }} {{ l is eq [3, 1, 2] }} {{ x | tojson }} {{ 1e400 if f else 'ok' }} {{ 5 is number and 5 is not string }} {{ (1, 2) is sequence }} {{ 'a' in ('a', 'b') }} {{ {} is mapping }}
{{ '{}{}'.format(1, '😀') }} {{ '{a}-{b}'.format(b=[1], a=none) }} {{ '{1}{0}{{'.format('x', missing) }} {{ '}}{}'.format(1.5) }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ '1a'.isdigit() }}
""".strip("\n").split("\n")

BLOCKS = [
    "a\n  {% if t %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if t -%}\n  b\n  {%- endif -%}\nc\n",
    "a\n  {%+ if t +%}\n  b\n  {%+ endif %}\nc\n",
    "  {{ i }}  \n  {{- i -}}  \n x",
    "{# c #}\n  {# d #}\nx {# e -#}  \n y",
    "x\n\n",
    "x\n",
    "\n\nx",
    "{% if t %}\n\nx{% endif %}\n",
    "a {% set q = 1 %} b\n {% set q = 2 %} c",
    "{% raw %}\n  {{ x }}\n{% endraw %}\ny",
    "{%- raw -%}  a  {%- endraw -%}  b",
    "  {% raw %} a {% endraw %}\n b",
    "\r\nwin\r\n{% if t %}\r\nx\r\n{% endif %}\ry\r",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\n",
    "{% for x in l -%}\n  {{ x }}\n{%- endfor %}",
    "{{ '{{' }} {{ '}}' }} {{ {'a': {}}}}",
    "a{#- c -#} b",
    " \t{% if t %}x{% endif %}",
    "x \t{% if t %}x{% endif %}",
    "{{- s }}",
    "a\n \u00a0{%- if t %}b{% endif %}",
    "{%if t%}x{%endif%}",
    "{%- for x in l: %}{{ x }}{% endfor %}",
    "{ { % } {",
    "{{ s }}}",
    "a{%- if t %}\n{%- endif %}\n\nb",
    "é\n  {% if t %}ü{% endif %}\n",
    "{{ [1,\n2] }}\n{{ s }}\n",
    "{% set x = [\n 1,\n 2\n] %}\n{{ x }}",
    "{% if f %}a{% elif n %}b{% elif i == 7 %}c{% else %}d{% endif %}",
    "{% if f %}a{% else %}d{% endif %}{% if f, %}tuple{% endif %}",
]

CHAT = """{%- macro render(message) -%}
    {%- if message.content is string -%}
        {{- message.content | trim -}}
    {%- elif message.content is iterable and message.content is not none -%}
        {%- for part in message.content -%}
            {%- if part.type == 'text' -%}{{- part['text'] -}}{%- else -%}[{{- part.type -}}]{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(system=none, turns=0) -%}
{%- if messages and messages[0]['role'] == 'system' -%}
    {%- set ns.system = render(messages[0]) -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{{- bos_token -}}
{%- if ns.system or tools -%}
{{- '<|system|>\\n' + (ns.system or '') -}}
{%- if tools %}
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
{%- endif -%}
{{- '<|end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if (message['role'] == 'user') != (ns.turns % 2 == 0) -%}
        {{- raise_exception('Roles must alternate, not ' ~ message.role ~ ' at ' ~ loop.index) -}}
    {%- endif -%}
    {%- set ns.turns = ns.turns + 1 -%}
    {{- '<|' ~ message.role ~ '|>\\n' ~ render(message) ~ '<|end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}
"""


def chats():
    user, answer = {"role": "user", "content": " hi\n"}, {"role": "assistant", "content": "yo 你好"}
    system = {"role": "system", "content": "Be brief."}
    tools = [
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {"type": "object", "properties": {"a": {"type": "number", "default": 1.0}}},
            },
        }
    ]
    for messages in (
        [user],
        [system, user],
        [user, answer, user],
        [answer],
        [],
        [user, user],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}],
        [{"role": "user", "content": None}],
    ):
        for extra in ({}, {"add_generation_prompt": True}, {"tools": tools}):
            yield dict(
                {"messages": messages, "tools": None, "add_generation_prompt": False, "bos_token": "<s>"}, **extra
            )


# Templates that must fail, at run time or before; with jinja2's message if ours is the same.
FAIL = r"""
{{ missing.x }}
{{ missing['x'] }}
{{ d.zzz.y }}
{{ l[9].x }}
{{ n.x.y }}
{{ missing() }}
{{ d.zzz() }}
{{ missing + 1 }}
{{ missing < 1 }}
{{ -missing }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ [1] + (1,) }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ 1 / 0 }}
{{ 1 in 5 }}
{{ 1 in 'a' }}
{{ s() }}
{{ l.append(1) }}
{{ d.pop('a') }}
{{ d.update({}) }}
{{ s.__class__.__mro__ }}
{{ raise_exception('told you') }}
{{ l | tojson(nope=1) }}
{{ missing | tojson }}
{{ [missing] | tojson }}
{{ range(3) | tojson }}
{{ range(1000000) }}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in [(1,)] %}{% endfor %}
{% set d.x = 1 %}
{% set missing.x = 1 %}
{% set ns = namespace() %}{{ ns.zzz.y }}
{% macro f(a) %}{{ a.b }}{% endmacro %}{{ f() }}
{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{% endmacro %}{{ f(z=2) }}
{{ 'x'.join([1]) }}
{{ ''.split('') }}
{{ {[1]: 2} }}
{{ l | sort(attribute='x.y') }}
{{ [1, 'a'] | sort }}
{{ (l | map('upper'))  | length }}
{{ l | map('nosuch') | list }}
{{ 5 | length }}
{{ 5 | list }}
{{ '{} {}'.format(1) }}
{{ '{a}'.format(1) }}
{{ l['a':] }}
{{ d[1:2] }}
{{ l[::0] }}
{{ 5 | items | list }}
{{ 'a' is divisibleby 2 }}
{% if t %}{{ s | nosuch }}{% endif %}
{% if t %}{{ s is nosuch }}{% endif %}
{{ s | nosuch if f }}{{ missing.x }}
{{ 'x' * 'y' }}
{% for x in l %}{{ loop(x) }}{% endfor %}
{{ dict(1) }}
{{ '{}{0}'.format(1) }}
{{ '{'.format(1) }}
{{ '}'.format(1) }}
{{ '{1}'.format(1) }}
""".strip("\n").split("\n")

SYNTAX = [
    "{{ s",
    "{{ s }",
    "a\nb\n{% if t %}",
    "{% endif %}",
    "a\n{% iff t %}",
    "{% if t %}{% endfor %}",
    "{{ }}",
    "{{ 1 + }}",
    "\n\n{{ s | }}",
    "{{ (1, 2 }}",
    "{{ [1 }}",
    "{{ {1} }}",
    "{{ 'abc }}",
    "{% for x l %}{% endfor %}",
    "{% for x in l %}",
    "{% set 5 = 1 %}",
    "{% set x %}",
    "{% macro f( %}{% endmacro %}",
    "{% macro f(a=1, b) %}{% endmacro %}",
    "{{ f(a=1, 2) }}",
    "{{ f(**a, b) }}",
    "{% break %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{# x",
    "{% raw %} x",
    "{{ s ! }}",
    "{{ s ? 1 : 2 }}",
    "{% call s %}{% endcall %}",
    "x\ny\n{{ s | nosuch }}",
    "{{ s is nosuch }}",
    "{% for loop in l %}{% endfor %}",
    "{{ s is string is string }}",
    "{% %}",
    "{{ a b }}",
    "{% if t %}a{% else %}b{% else %}c{% endif %}",
    "{% set true = 1 %}",
    "{{ ) }}",
    "{{ '\\x4' }}",
    "{% macro f(a, a) %}{% endmacro %}",
    "{{ f(a=1, a=2) }}",
    "{% if f %}{% for x in l %}{{ x | nosuch }}{% endfor %}{% endif %}",
    "{% for x in l %}{% set loop = 1 %}{% endfor %}",
    "{{ 08 }}",
    "{{ x.1.2 }}{{ 1..2 }}",
]


def run(env, template, variables):
    case = {"template": template}
    try:
        compiled = env.from_string(template)
    except (jinja2.exceptions.TemplateSyntaxError, SyntaxError) as error:
        case["compile_error"] = (
            error.message if isinstance(error, jinja2.exceptions.TemplateSyntaxError) else "invalid Python"
        )
        case["line"] = error.lineno if isinstance(error, jinja2.exceptions.TemplateSyntaxError) else 0
        return case
    try:
        case["text"] = compiled.render(**variables)
    except Exception as error:  # any kind of error counts
        case["error"] = str(error)
        case["raised"] = type(error) is jinja2.exceptions.TemplateError
    return case


def main():
    os.environ["TZ"] = "UTC"
    time.tzset()
    env = environment()
    cases = []
    for template in SNIPPETS + BLOCKS:
        case = run(env, template, DATA)
        assert "text" in case, case
        cases.append(case)
    for template in FAIL:
        case = run(env, template, DATA)
        assert "error" in case, case
        cases.append(case)
    for template in SYNTAX:
        case = run(env, template, DATA)
        assert "text" not in case, case
        cases.append(case)
    conversations = [dict(run(env, CHAT, variables), variables=variables) for variables in chats()]
    for case in conversations:
        del case["template"]
    output = (
        sys.argv[1]
        if len(sys.argv) > 1
        else os.path.join(
            os.path.dirname(os.path.abspath(__file__)), "../tests/language/text/data/templates/golden.json"
        )
    )
    os.makedirs(os.path.dirname(output), exist_ok=True)
    golden = {
        "now_s": NOW_S,
        "jinja2": jinja2.__version__,
        "variables": DATA,
        "cases": cases,
        "chat": CHAT,
        "conversations": conversations,
    }
    with open(output, "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=False, indent=1)
        file.write("\n")
    print(f"{len(cases)} templates, {len(conversations)} conversations -> {output}")


if __name__ == "__main__":
    main()
