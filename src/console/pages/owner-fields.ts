// Fields of the forms that change keys, holders and teams, filled with what a record has.
import { quotedWord } from './form-body.ts';
import { type Field, member } from './record-view.ts';

/** Fields of limits, budget and restrictions as they are. */
export function termsInputs(record: object): readonly Field[] {
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
      hint: 'such as requests_per_minute=100 tokens_per_day=none',
    },
    { name: 'map.budget', label: 'Budget', value: pairs('budget'), hint: 'such as per_month=100' },
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
    hint: 'NAME=VALUE, separated by spaces; a VALUE with spaces in double quotes',
  };
}

export const nameField = (record: object): Field => ({
  name: 'null.name',
  label: 'Name',
  value: String(member(record, 'name') ?? ''),
});
export const FORCE: Field = { name: 'flag.force', label: 'Allow more than the tier has', type: 'checkbox' };
export const TERMS_REMOVED = { limits: 'tier', budget: 'tier' } as const;
