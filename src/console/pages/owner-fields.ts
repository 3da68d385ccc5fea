// Fields of the forms that change keys, holders and teams, filled with what a record has.
import { quotedWord } from './form-body.ts';
import { type Field, member } from './record-view.ts';

/** When a key ends. */
const EXPIRY_HINT = 'such as 90d or 2030-01-31; empty: never';
/** What an empty field of limits means for a holder. */
export const OF_HOLDER = 'empty: as the tier has';
/** Limits of keys and teams are their own: one ends by a word, and an empty field is an error. */
export const OF_ITS_OWN = 'NAME=none ends one';

/** Fields of limits, budget and restrictions as they are. @param removal how a limit ends */
export function termsInputs(record: object, removal: typeof OF_HOLDER | typeof OF_ITS_OWN): readonly Field[] {
  const pairs = (name: string) =>
    Object.entries(member(record, name) ?? {})
      .flatMap(([each, value]) => (each === 'soft' ? [] : [`${each}=${value}`]))
      .join(' ');
  const words = (name: string) => {
    const list: unknown = member(record, name);
    return Array.isArray(list) ? list.map((word) => quotedWord(String(word))).join(' ') : '';
  };
  const restrictions = Object.hasOwn(record, 'models')
    ? [
        { name: 'list.models', label: 'Models', value: words('models'), hint: 'empty: all of the tier' },
        { name: 'list.endpoints', label: 'Endpoints', value: words('endpoints'), hint: 'empty: all' },
      ]
    : [];
  return [
    {
      name: 'map.limits',
      label: 'Limits',
      value: pairs('limits'),
      hint: `such as requests_per_minute=100 tokens_per_day=none; ${removal}`,
    },
    {
      name: 'map.budget',
      label: 'Budget',
      value: pairs('budget'),
      hint: `such as per_month=100; ${removal}`,
    },
    ...restrictions,
  ];
}

export function labelsField(record: object): Field {
  const labels = Object.entries(member(record, 'labels') ?? {}).map(
    ([name, value]) => `${name}=${quotedWord(String(value))}`,
  );
  return {
    name: 'map.labels',
    label: 'Labels',
    value: labels.join(' '),
    hint: 'NAME=VALUE, separated by spaces; a VALUE with spaces in double quotes; empty: none',
  };
}

export const nameField = (record: object): Field => ({
  name: 'null.name',
  label: 'Name',
  value: String(member(record, 'name') ?? ''),
  hint: 'empty: none',
});
export const teamField = (record: object): Field => ({
  name: 'null.team',
  label: 'Team',
  value: String(member(record, 'team') ?? ''),
  hint: 'empty: none',
});
export const expiryField = (value: string): Field => ({
  name: 'null.expires',
  label: 'Expires',
  value,
  hint: EXPIRY_HINT,
});
export const OF_NEW_KEY: readonly Field[] = [
  { name: 'text.name', label: 'Name of the key', hint: 'empty: none' },
  { name: 'text.expires', label: 'Expires', hint: EXPIRY_HINT },
];
export const OF_NEW_HOLDER: readonly Field[] = [
  { name: 'text.holder', label: 'Name of the new holder', hint: 'empty: none' },
  { name: 'text.team', label: 'Team', hint: 'empty: none' },
];
export const FORCE: Field = { name: 'flag.force', label: 'Allow more than the tier has', type: 'checkbox' };
export const TERMS_REMOVED = { limits: 'tier', budget: 'tier' } as const;
