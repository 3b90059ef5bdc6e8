// What the launch page says about where an image is. No page here.
import { write } from "#amounts";
import { gettext, ngettext } from "#i18n";

// Returns a sentence, or "" where nothing is known. `have` of the `total` hosts of the group have the image; `size` is in
// bytes or null; an image that is not pulled, `isPulled` false, is only on the hosts that have it.
export function presenceText({ have, total, size, isPulled }) {
  if (!total) return "";
  if (have >= total) return ngettext("On the host already.", "On all %(count)s hosts already.", total);
  const values = { have, total, size: size ? write.size(size) : "" };
  if (!isPulled) {
    if (have) return gettext("On %(have)s of %(total)s hosts already.", values);
    return ngettext("Not on the host yet.", "Not on the hosts yet.", total);
  }
  if (have) {
    return size
      ? gettext("On %(have)s of %(total)s hosts already; the others pull it first, about %(size)s.", values)
      : gettext("On %(have)s of %(total)s hosts already; the others pull it first.", values);
  }
  return size
    ? ngettext("Not on the host yet; it is pulled first, about %(size)s.", "Not on the hosts yet; it is pulled first, about %(size)s.", total, values)
    : ngettext("Not on the host yet; it is pulled first.", "Not on the hosts yet; it is pulled first.", total);
}
