// A recipe of examples/vendors for a test: its own text, with the host of a scripted upstream and a credential of the test.
import { readdirSync, readFileSync } from 'node:fs';
import { parse } from 'yaml';

const FOLDER = new URL('../../examples/vendors/', import.meta.url);

/** Values for the variables of all recipes. */
export const RECIPE_ENV: Readonly<Record<string, string>> = {
  ANTHROPIC_API_KEY: 'key-of-anthropic',
  AWS_BEARER_TOKEN_BEDROCK: 'key-of-bedrock',
  AWS_REGION: 'us-west-2',
  AZURE_RESOURCE: 'my-resource',
  DEEPSEEK_API_KEY: 'key-of-deepseek',
  GOOGLE_CLOUD_PROJECT: 'my-project',
  GROQ_API_KEY: 'key-of-groq',
  MISTRAL_API_KEY: 'key-of-mistral',
  OPENAI_API_KEY: 'key-of-openai',
  OPENROUTER_API_KEY: 'key-of-openrouter',
  TOGETHER_API_KEY: 'key-of-together',
  VLLM_API_KEY: 'key-of-vllm',
};

/** Names of the recipes, without `.yaml`. */
export const RECIPES: readonly string[] = readdirSync(FOLDER)
  .filter((name) => name.endsWith('.yaml'))
  .map((name) => name.replace(/\.yaml$/, ''));

export const recipePath = (name: string): string => new URL(`${name}.yaml`, FOLDER).pathname;
export const recipeText = (name: string): string => readFileSync(recipePath(name), 'utf8');

/** What the upstream has to get as `authorization`. */
export const CREDENTIAL = 'Bearer credential-of-the-test';

/**
 * The recipe with another host and another credential, and nothing else changed: `auth` becomes an `api_key`, because the vendor's
 * issuer is not there.
 * @param origin scheme, host and port of the scripted upstream
 */
export function recipeFor(name: string, origin: string): string {
  const [head = '', ...rest] = recipeText(name).split(/^(?=models:)/m);
  const local = head
    .replace(/^( +)base_url: (\S+)/m, (_line, indent: string, url: string) => {
      const { pathname, search } = new URL(url.replaceAll(/\$\{(\w+)(?::-([^}]*))?\}/g, variable));
      return `${indent}base_url: ${origin}${pathname}${search}`;
    })
    .replace(/^ +(api_key|auth):.*\n(?: {6,}.*\n)*/m, '')
    .replace(/^( +)base_url:/m, `$1api_key: ${CREDENTIAL.split(' ')[1]}\n$1base_url:`);
  return [local, ...rest].join('');
}

function variable(reference: string, name: string, otherwise: string | undefined): string {
  const value = RECIPE_ENV[name] ?? otherwise;
  if (value === undefined) throw new Error(`${reference} has no value in RECIPE_ENV`);
  return value;
}

/** The same file as a value. */
export const recipeValue = (name: string): unknown => parse(recipeText(name));
