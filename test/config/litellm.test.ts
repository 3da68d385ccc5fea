// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of the configuration look like placeholders
// The configuration of LiteLLM's proxy is recognized, and its parts are named as they are called here.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { LITELLM_PARTS } from '../../src/config/check/litellm.ts';
import { faultsOf, MINIMAL } from './sample.ts';

const FILE = `
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: os.environ/AZURE_API_BASE
      api_key: hidden-word
      rpm: 6
    model_info: { input_cost_per_token: 0.1 }
  - { model_name: "*", litellm_params: { model: "*", stream_timeout: 5 } }
litellm_settings: { drop_params: true, fallbacks: [{ gpt-4o: ["*"] }], set_verbose: false }
router_settings: { routing_strategy: least-busy, redis_password: hidden-word }
general_settings: { master_key: hidden-word, database_url: "postgresql://u:hidden-word@h/d" }
environment_variables: { HIDDEN: hidden-word }
`;

describe('the file of LiteLLM', () => {
  it('is one error, with each part that occurs once, and no value', () => {
    const [fault, ...others] = faultsOf(FILE);
    expect(others).toEqual([]);
    expect(fault).toMatchObject({ line: 2, column: 1 });
    const [first, ...rows] = fault?.message.split('\n') ?? [];
    expect(first).toContain('this is the configuration of LiteLLM');
    expect(rows.map((row) => /^ {2}(\S+) +(.+)$/.exec(row)?.slice(1))).toEqual([
      ...[
        'model_list',
        'model_list.model_name',
        'litellm_params.model',
        'litellm_params.api_base',
        'litellm_params.api_key',
        'litellm_params.rpm',
        'litellm_params.stream_timeout',
        'model_info.input_cost_per_token',
        'litellm_settings',
        'litellm_settings.drop_params',
        'litellm_settings.fallbacks',
        'router_settings',
        'router_settings.routing_strategy',
        'router_settings.redis_password',
        'general_settings',
        'general_settings.master_key',
        'general_settings.database_url',
        'environment_variables',
      ].map((name) => [name, LITELLM_PARTS[name]]),
      ['os.environ/NAME', '`${NAME}`'],
    ]);
    expect(JSON.stringify(fault)).not.toContain('hidden-word');
  });

  it.each([
    'model_list: []',
    'model_list:',
    'general_settings: {}',
    'litellm_settings: text',
    'router_settings: [1]',
    'model_list: [a, { litellm_params: b }]',
    'model_list: &a [{ model_name: x }]\nlitellm_settings: { <<: *a }',
  ])('is recognized by any of its sections: %j', (text) => {
    expect(faultsOf(text).map(({ message }) => message.split(',')[0])).toEqual([
      'this is the configuration of LiteLLM',
    ]);
  });

  it('is not one with sections of both, whose unknown keys are named', () => {
    const messages = faultsOf(`${MINIMAL}general_settings: {}\n`).map(({ message }) => message);
    expect(messages).toEqual(['unknown key `general_settings`; see config.schema.json']);
    expect(faultsOf('environment_variables: {}').map(({ message }) => message)).not.toContain('LiteLLM');
  });

  it('has the same table in the documentation', () => {
    const page = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
    const section = page.slice(page.indexOf('## Coming from LiteLLM'));
    const rows = Array.from(section.matchAll(/^\| ([\w.]+) \| (.+) \|$/gm), ([, name, here]) => [name, here]);
    expect(rows).toEqual([['LiteLLM', 'here'], ...Object.entries(LITELLM_PARTS)]);
  });
});
