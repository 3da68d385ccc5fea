// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
// What `tollgate check` takes for a mistake, though the gateway would start with it.
import { describe, expect, it } from 'vitest';
import { load, placesBefore, withUpstream } from './sample.ts';

const warningsOf = (text: string): string[] =>
  load(text).warnings.map(({ line, column, message }) => `${line}:${column} ${message}`);

describe('the base URL of a known vendor', () => {
  it.each([
    ['https://api.openai.com', 'ends with `/v1`'],
    ['https://api.openai.com/', 'ends with `/v1`'],
    ['https://eu.api.openai.com/v2', 'ends with `/v1`'],
    ['https://api.anthropic.com', 'ends with `/v1`'],
    ['https://api.mistral.ai', 'ends with `/v1`'],
    ['https://api.together.ai/openai/v1', 'ends with `/v1`'],
    ['https://api.groq.com/v1', 'ends with `/openai/v1`'],
    ['https://openrouter.ai/v1', 'ends with `/api/v1`'],
    ['https://api.deepseek.com/v3', 'has no path'],
    ['https://mine.openai.azure.com', 'ends with `/openai/v1`'],
    ['https://bedrock-runtime.eu-central-1.amazonaws.com', 'ends with `/openai/v1`'],
    ['https://europe-west1-aiplatform.googleapis.com/v1', '/endpoints/openapi`'],
  ])('%s', (url, ending) => {
    const found = warningsOf(withUpstream(`base_url: ${url}`));
    expect(found).toEqual([
      expect.stringMatching(/^4:15 upstreams\.u\.base_url: is probably not where this vendor serves/),
    ]);
    expect(found[0]).toContain(ending);
  });

  it.each([
    'https://api.openai.com/v1',
    'https://api.openai.com/v1/',
    'https://eu.api.openai.com/v1',
    'https://api.groq.com/openai/v1',
    'https://api.deepseek.com',
    'https://api.deepseek.com/v1',
    'https://mine.openai.azure.com/openai/deployments/gpt-4o',
    'https://mine.openai.azure.com/openai/v1/',
    'https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1',
    'https://aiplatform.googleapis.com/v1/projects/p/locations/global/endpoints/openapi',
    'https://api.openai.com.example.com',
    'https://llm.example.com',
    'http://127.0.0.1:8000',
  ])('%s is right, or not known', (url) => {
    expect(warningsOf(withUpstream(`base_url: ${url}`))).toEqual([]);
  });
});

describe('what has no effect', () => {
  const two = (rest: string) =>
    `upstreams: { a: { builtin: echo }, b: { base_url: "http://127.0.0.1:1/v1" } }\nmodels: { m: { targets: [{ upstream: a, model: m }] } }\n${rest}`;

  it('an upstream that no model uses', () => {
    expect(warningsOf(two(''))).toEqual(['1:36 upstreams.b: is not used: no model has a target there']);
  });

  it('but one for pass-through is used, and one that is out of service may wait', () => {
    expect(warningsOf(two('passthrough: { upstream: b, paths: [/v1/files] }'))).toEqual([]);
    expect(warningsOf(two('').replace('/v1"', '/v1", enabled: false'))).toEqual([]);
  });

  it.each(['{ after: p95 }', '{ after: 800ms }'])('a hedge %s of a model with one target', (hedge) => {
    const model = (count: number) =>
      `upstreams: { a: { builtin: echo } }\nmodels:\n  m:\n    hedge: ${hedge}\n    targets: [${Array(count).fill('{ upstream: a, model: m }').join(', ')}]\n`;
    expect(warningsOf(model(1))).toEqual([
      '4:12 models.m.hedge: has no effect, because the model has only one target',
    ]);
    expect(warningsOf(model(2))).toEqual([]);
  });
});

describe('a value that is a comment', () => {
  const rest =
    '\nupstreams: { a: { builtin: echo } }\nmodels: { m: { targets: [{ upstream: a, model: m }] } }\n';
  const message = 'is empty, because `#` begins a comment: write a value with `#` in quotes';

  it.each([
    ['branding:\n  color: #1a4fa0', '2:3 branding.color'],
    ['branding:\n  color:   #1a4fa0 # blue', '2:3 branding.color'],
    ['branding: { color: #1a4fa0\n  }', '1:13 branding.color'],
    ['redis: #none', '1:1 redis'],
  ])('%j is a fault that says so', (lines, place) => {
    expect(placesBefore(lines)).toEqual([`${place}: ${message}`]);
  });

  it('that a body rule may have is warned about', () => {
    const rule =
      'upstreams: { a: { builtin: echo } }\nmodels:\n  m:\n    body:\n      set:\n        stop: #end\n';
    expect(warningsOf(`${rule}    targets: [{ upstream: a, model: m }]\n`)).toEqual([
      `6:15 models.m.body.set.****: ${message}`,
    ]);
  });

  it.each(['redis: # none', 'redis:\n#next'])('%j is empty', (lines) => {
    expect(placesBefore(lines)).toEqual(['1:1 redis: is empty: write a value, or leave it out']);
  });

  it.each(['branding: #all of it\n  color: "#1a4fa0"', '#a'])('%j is none', (lines) => {
    expect(warningsOf(lines + rest)).toEqual([]);
  });
});

describe('a variable that is not written as one', () => {
  const message = 'is taken as it is: a variable of the environment is written `${NAME}` here';

  it.each([
    '$OPENAI_API_KEY',
    '$(OPENAI_API_KEY)',
    '%OPENAI_API_KEY%',
    '$env:OPENAI_API_KEY',
    '{{ OPENAI_API_KEY }}',
    'os.environ/OPENAI_API_KEY',
  ])('%s', (value) => {
    for (const [path, given] of [
      ['api_key', `'${value}'`],
      ['headers.x-key', `{ x-key: '${value}' }`],
      ['query.x-key', `{ x-key: '${value}' }`],
    ]) {
      const found = load(
        withUpstream(`base_url: https://a.example/v1\n${path?.split('.')[0]}: ${given}`),
      ).warnings;
      expect(found.map((each) => each.message)).toEqual([`upstreams.u.${path}: ${message}`]);
    }
  });

  it.each(['sk-$abc', '$5.00', 'a$(b)', '100%', 'os.environ'])('%s is a value', (value) => {
    expect(warningsOf(withUpstream(`base_url: https://a.example/v1\napi_key: '${value}'`))).toEqual([]);
  });

  it('is no matter in what a variable holds', () => {
    const text = withUpstream('base_url: https://a.example/v1\napi_key: ${KEY}');
    expect(load(text, { KEY: '$other' }).warnings).toEqual([]);
  });
});
