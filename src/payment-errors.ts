// Errors of pages, orders and payments; a part of the table in errors.ts. Contains no text of a payment provider.

const BAD = 'invalid_request_error';

export const PAYMENT_ERRORS = {
  cross_origin_form: {
    status: 403,
    type: 'request_forbidden',
    retry: 'no',
    message: 'This form can only be submitted from its own site.',
    meaning: 'A browser submitted a form of the pricing pages from another origin.',
  },
  unknown_host: {
    status: 421,
    type: 'request_forbidden',
    retry: 'no',
    message: 'This page is not published under this name.',
    meaning: 'A page or checkout was requested with a `Host` other than that of `public_url`.',
  },
  invalid_event: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The event is not valid.',
    meaning: 'A signed event of the payment provider is malformed or of the other mode (test or live).',
  },
  invalid_signature: {
    status: 400,
    type: BAD,
    retry: 'no',
    message: 'The signature of the event is not valid.',
    meaning:
      'An event of the payment provider has no valid signature, or was signed more than five minutes ago or ahead.',
  },
  claim_forbidden: {
    status: 403,
    type: 'request_forbidden',
    retry: 'no',
    message: 'This browser did not make the order, or the order does not exist.',
    meaning:
      'A key is shown only to the browser that ordered it, identified by its cookie. The URL of the order is not enough.',
  },
  unknown_order: {
    status: 404,
    type: BAD,
    retry: 'no',
    message: 'There is no such order.',
    meaning: 'The URL names a payment session without an order at this gateway.',
  },
  already_entitled: {
    status: 409,
    type: BAD,
    retry: 'no',
    message: 'This key has that tier, or a higher one, already.',
    meaning: 'An upgrade was ordered to a tier that is not higher.',
  },
  order_closed: {
    status: 409,
    type: BAD,
    retry: 'no',
    message: 'A key for this order is no longer available.',
    meaning:
      'Its key was handed out and used, or handed out more than 30 minutes ago; or the order expired, failed, was refunded or is disputed.',
  },
  order_not_paid: {
    status: 409,
    type: BAD,
    retry: 'default',
    message: 'The order is not paid yet.',
    meaning:
      'A key was requested before the payment provider confirmed the payment. It may be paid in a moment.',
  },
  order_limit: {
    status: 429,
    type: 'requests',
    retry: 'wait',
    message: 'Too many orders came from this address. Wait a moment.',
    meaning: 'More than ten orders in a minute from one address (IPv6: one /64).',
  },
  payment_unavailable: {
    status: 503,
    type: 'service_unavailable_error',
    retry: 'wait',
    message: 'The payment provider cannot be reached at the moment. Nothing was charged.',
    meaning:
      'Opening or checking a payment needs the provider, which did not answer in time or rejects the operator’s configuration (then `x-should-retry: false`).',
  },
} as const;
