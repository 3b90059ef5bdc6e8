// What the launch page says about where an image is. No page here.
const sized = (bytes) => (bytes < 1e9 ? `${Math.max(1, Math.round(bytes / 1e6))} MB` : `${(bytes / 1e9).toFixed(1)} GB`);

// Returns a sentence, or "" where nothing is known. `have` of the `total` hosts of the group have the image; `size` is in
// bytes or null; an image that is not pulled, `isPulled` false, is only on the hosts that have it.
export function presenceText({ have, total, size, isPulled }) {
  if (!total) return "";
  if (have >= total) return total === 1 ? "On the host already." : `On all ${total} hosts already.`;
  const some = have ? `On ${have} of ${total} hosts already` : `Not on the ${total === 1 ? "host" : "hosts"} yet`;
  if (!isPulled) return `${some}.`;
  const pulls = have ? "; the others pull it first" : "; it is pulled first";
  return `${some}${pulls}${size ? `, about ${sized(size)}` : ""}.`;
}
