/* Runs a fuzz target on the files named, each once: where there is no libFuzzer, and for the corpus. */
#include "input.h"

int main(int argc, char **argv) {
    static uint8_t text[1 << 16];
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        size_t size = file ? fread(text, 1, sizeof text, file) : 0;
        uint8_t *exact = malloc(size ? size : 1); /* so that a read past its end is seen */
        if (!file || !exact) {
            perror(argv[i]);
            return 2;
        }
        fclose(file);
        memcpy(exact, text, size);
        fprintf(stderr, "%s\n", argv[i]); /* the last one, if it crashes */
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    return 0;
}
