// Lets xterm.js write its style elements and attributes under a Content-Security-Policy that refuses inline styles:
// elements get the page's nonce, and attributes are set by CSSOM, which the policy allows to scripts.
const { nonce } = document.querySelector("script[nonce]");
const createElement = document.createElement.bind(document);
const { setAttribute } = Element.prototype;

document.createElement = (name, options) => {
  const element = createElement(name, options);
  if (name === "style") element.nonce = nonce;
  return element;
};

Element.prototype.setAttribute = function setAttributeWithoutInlineStyle(name, value) {
  if (name === "style") this.style.cssText = value;
  else setAttribute.call(this, name, value);
};
