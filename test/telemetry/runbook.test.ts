// docs/runbook.md and the alerts in examples/ belong together: each has its part, and the metrics, commands, log lines, codes and fields that the
// page names exist.
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { ERRORS } from '../../src/errors.ts';
import { STATE_NAMES } from '../../src/upstream/state/upstream-state.ts';
import { runCommand } from '../helpers/gateway.ts';
import { faultsOf, METRIC_ROWS } from '../helpers/metric-facts.ts';

const ROOT = new URL('../../', import.meta.url);
const read = (file: string): string => readFileSync(new URL(file, ROOT), 'utf8');

const rules = z
  .object({
    groups: z.array(
      z.object({
        rules: z.array(
          z.object({
            alert: z.string(),
            labels: z.object({ severity: z.string() }),
            annotations: z.object({ description: z.string(), runbook: z.string() }),
          }),
        ),
      }),
    ),
  })
  .parse(parse(read('examples/prometheus/alerts.yaml')))
  .groups.flatMap((group) => group.rules);

const PAGE = read('docs/runbook.md');
const sections = new Map(
  PAGE.split(/^### /m)
    .slice(1)
    .map((text) => [text.slice(0, text.indexOf('\n')), text.replace(/^## [\s\S]*/m, '')]),
);
const quoted = Array.from(PAGE.matchAll(/`([^`\n]+)`/g), ([, text]) => text ?? '');

describe('the runbook', () => {
  test('has a section for each rule, and each rule names its own', () => {
    expect([...sections.keys()].sort()).toEqual(rules.map(({ alert }) => alert).sort());
    for (const { alert, annotations } of rules)
      expect(annotations.runbook).toBe(`docs/runbook.md#${alert.toLowerCase()}`);
  });

  test.each(rules)('says of $alert how bad it is, what it means, what to look at and what to do', (rule) => {
    const section = sections.get(rule.alert) ?? '';
    const severity = { page: 'Page', ticket: 'Ticket' }[rule.labels.severity];
    expect(section).toMatch(new RegExp(`^\\*\\*${severity}(\\*\\*|\\.\\*\\*)`, 'm'));
    const parts = Array.from(section.matchAll(/^- \*\*([^*]+):\*\* \S/gm), ([, name]) => name);
    expect(parts).toEqual(['Means', 'Look at', 'Do']);
  });

  test('has the sections to which other pages link', () => {
    const pages = ['README.md', ...readdirSync(new URL('docs/', ROOT)).map((name) => `docs/${name}`)];
    const links = pages
      .filter((page) => page.endsWith('.md'))
      .flatMap((page) => Array.from(read(page).matchAll(/runbook\.md#([\w-]+)/g), ([, anchor]) => anchor));
    expect(links.length).toBeGreaterThan(10);
    const anchors = [...sections.keys()].map((name) => name.toLowerCase());
    expect(links.filter((anchor) => !anchors.includes(anchor ?? ''))).toEqual([]);
  });

  test('names metrics, labels and values that exist', () => {
    const expressions = quoted.filter((text) => /\b(tollgate|gen_ai|process|nodejs)_\w+/.test(text));
    expect(expressions.length).toBeGreaterThan(25);
    const faults = expressions
      .filter((text) => !METRIC_ROWS.has(text))
      .flatMap((text) => faultsOf(text).faults.map((fault) => `${text}: ${fault}`));
    expect(faults).toEqual([]);
  });

  test('names lines of the log that are written', () => {
    const sources = readdirSync(new URL('src/', ROOT), { recursive: true, encoding: 'utf8' })
      .filter((path) => path.endsWith('.ts'))
      .map((path) => read(`src/${path}`))
      .join('\n');
    const lines = quoted.flatMap((text) => /^"(.*)"$/.exec(text)?.[1] ?? []);
    expect(lines.length).toBeGreaterThan(8);
    expect(lines.filter((line) => !sources.includes(`'${line}'`))).toEqual([]);
  });

  test('names codes, fields, label values and states that exist', () => {
    const known = [
      read('config.schema.json'),
      read('src/telemetry/log/access-log.ts'),
      JSON.stringify([...METRIC_ROWS.values()]),
      Object.keys(ERRORS).join(),
      STATE_NAMES.join(),
      'checks store config_hash',
      'level warn error runbook promtool',
      'X',
    ].join('\n');
    const words = quoted
      .filter((text) => /^[a-z_]+(\.[A-Za-z_]+)*$/.test(text) && !/^process_/.test(text))
      .flatMap((text) => text.split('.'));
    expect(words.length).toBeGreaterThan(40);
    const unknown = words.filter(
      (word) => !METRIC_ROWS.has(word) && !new RegExp(`\\b${word}\\b`).test(known),
    );
    expect(unknown).toEqual([]);
  });
});

describe('commands', () => {
  const texts = [
    ...quoted,
    ...rules.flatMap(({ annotations: { description } }) => description.match(/(?<=`)tollgate [^`]+/g) ?? []),
  ];
  const commands = [...new Set(texts.filter((text) => text.startsWith('tollgate ')))];

  test.each(commands)('%s exists', async (command) => {
    const words = command.split(' ').slice(1);
    const end = words.findIndex((word) => /^(-|[A-Z])/.test(word));
    const names = end === -1 ? words : words.slice(0, end);
    const { code, stdout } = await runCommand([...names, '--help']);
    expect(code).toBe(0);
    for (const name of names) expect(stdout).toMatch(new RegExp(`\\b${name}\\b`));
    for (const option of words.filter((word) => word.startsWith('--')))
      expect(stdout, option).toMatch(new RegExp(`${option}\\b`));
  });
});
