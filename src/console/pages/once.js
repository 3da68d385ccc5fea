// Sends a form that changes something once, however fast its button is pressed: the answer to a second one would hide a new key.
const AGAIN_MS = 5000;
addEventListener('submit', (event) => {
  const { dataset, method } = event.target;
  if (method !== 'post') return;
  if (event.timeStamp - Number(dataset.sent ?? -AGAIN_MS) < AGAIN_MS) event.preventDefault();
  else dataset.sent = event.timeStamp;
});
