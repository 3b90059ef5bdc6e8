/* The simulated driver's modules: what an image in PTX or ELF names, kernels and global variables, can be found. Kernels
 * do nothing but take time: as long as a first parameter named `ns` says, or SHORT_NS. */
#include <ctype.h>
#include <elf.h>
#include <stdio.h>

#include "cuda.h"

enum { SHORT_NS = 1000, REGISTERS = 32 /* images do not say it in public */, DEFAULT_KERNEL_NS = 1000000, INVALID_IMAGE = 200, INVALID_PTX = 218, NO_FILE = 301, STO_CUDA_ENTRY = 0x10, ATTRIBUTES = 16 };

struct function { struct function *next; struct module *module; char *name; bool timed; int attribute[ATTRIBUTES], block[3]; unsigned char params[4096]; };
struct global { struct global *next; char *name; uint64_t bytes; const void *content; CUdeviceptr address; };
struct module { struct function *functions; struct global *globals; char *image; };

uint64_t kernel_ns(CUfunction f, void **params)
{
    const struct function *function = f;
    bool timed = !function || function->timed; /* test programs launch no function at all */
    return timed ? params && params[0] ? *(uint64_t *)params[0] : DEFAULT_KERNEL_NS : SHORT_NS;
}

/* By the interface of before CUDA 4; test programs launch no function at all. */
uint64_t kept_kernel_ns(CUfunction f)
{
    const struct function *function = f;
    void *first = f ? (void *)(uintptr_t)function->params : NULL;
    return f && !function->block[0] ? 0 : kernel_ns(f, f ? &first : NULL);
}

static char *text_copy(const char *text, size_t n)
{
    char *copy = zeroed(n + 1);
    memcpy(copy, text, n);
    return copy;
}

static char *name_at(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || text[n] == '_' || text[n] == '$' || text[n] == '%')
        n++;
    return text_copy(text, n);
}

static struct function *add_function(struct module *module, char *name)
{
    struct function *function = zeroed(sizeof *function);
    *function = (struct function){.next = module->functions, .module = module, .name = name, .attribute = {1024, 0, 0, 0, REGISTERS, 90, 90, 0, 49152, -1}};
    return module->functions = function;
}

static void add_global(struct module *module, char *name, uint64_t bytes, const void *content)
{
    struct global *global = zeroed(sizeof *global);
    *global = (struct global){module->globals, name, bytes, content, 0};
    module->globals = global;
}

/* PTX: `.entry NAME(.param TYPE PARAMETER, ...`, and `.global .align N .TYPE NAME[N] = ...;` or `.const`. */
static const char *word_after(const char *text, const char *word)
{
    for (const char *at = text; (at = strstr(at, word)); at++)
        if (isspace((unsigned char)at[strlen(word)]) && (at == text || isspace((unsigned char)at[-1])))
            return at + strlen(word) + strspn(at + strlen(word), " \t\r\n");
    return NULL;
}

static void read_variable(struct module *module, const char *at)
{
    uint64_t bytes = 0;
    const char *end = at + strcspn(at, ";={");
    for (const char *word = at; word < end; word += strspn(word, " \t\r\n")) {
        size_t length = strcspn(word, " \t\r\n;={[");
        if (word[0] == '.' && strncmp(word, ".align", 6) && isdigit((unsigned char)word[2]))
            bytes = strtoull(word + 2, NULL, 10) / 8; /* .b8, .u32, .f64 */
        if (word[0] != '.' && !isdigit((unsigned char)word[0]) && bytes) {
            char *name = name_at(word);
            for (const char *size = strchr(word, '['); size && size < end; size = strchr(size + 1, '['))
                bytes *= strtoull(size + 1, NULL, 10);
            add_global(module, name, bytes, NULL);
            return;
        }
        word += length ? length : 1;
    }
}

static CUresult read_ptx(struct module *module)
{
    if (!strstr(module->image, ".version") || !strstr(module->image, ".target"))
        return INVALID_PTX;
    for (const char *at = module->image; (at = word_after(at, ".entry"));) {
        struct function *function = add_function(module, name_at(at));
        const char *body = at + strcspn(at, "{;"), *bracket = strstr(at, "(.param");
        const char *first = bracket && bracket < body ? bracket + 8 : word_after(at, ".param");
        const char *type = first && first < body ? first : NULL;
        function->timed = type && strncmp(type, ".u64 ns", 7) == 0 && !isalnum((unsigned char)type[7]) && type[7] != '_';
    }
    static const char *const spaces[] = {".global", ".const"};
    for (int i = 0; i < 2; i++)
        for (const char *at = module->image; (at = word_after(at, spaces[i]));)
            read_variable(module, at);
    return CUDA_SUCCESS;
}

/* ELF: kernels are the functions that have the entry's mark, variables the objects. The hardware keeps a kilobyte of a block's shared memory. */
static void read_symbol(struct module *module, const Elf64_Shdr *home, const Elf64_Sym *symbol, const char *name)
{
    if (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_other & STO_CUDA_ENTRY)
        add_function(module, text_copy(name, strlen(name)));
    else if (ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT)
        add_global(module, text_copy(name, strlen(name)), symbol->st_size, home->sh_type == SHT_NOBITS ? NULL : module->image + home->sh_offset + symbol->st_value);
}

static CUresult read_elf(struct module *module)
{
    enum { SHARED_BYTES = 1, CONSTANT_BYTES = 2, RESERVED = 1024 };
    const char *image = module->image;
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)(uintptr_t)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(uintptr_t)(image + head->e_shoff);
    const char *titles = image + sections[head->e_shstrndx].sh_offset;
    for (int s = 0; s < head->e_shnum; s++) {
        const Elf64_Sym *symbols = (const Elf64_Sym *)(uintptr_t)(image + sections[s].sh_offset);
        const char *names = image + sections[sections[s].sh_link % head->e_shnum].sh_offset;
        for (size_t i = 0; sections[s].sh_type == SHT_SYMTAB && i < sections[s].sh_size / sizeof *symbols; i++)
            if (symbols[i].st_shndx != SHN_UNDEF && symbols[i].st_shndx < head->e_shnum)
                read_symbol(module, &sections[symbols[i].st_shndx], &symbols[i], names + symbols[i].st_name);
    }
    for (int s = 0; s < head->e_shnum; s++)
        for (struct function *function = module->functions; function; function = function->next) {
            const char *title = titles + sections[s].sh_name;
            int bytes = (int)sections[s].sh_size;
            if (strcmp(title, ".nv.constant3") == 0)
                function->attribute[CONSTANT_BYTES] = bytes;
            if (strncmp(title, ".nv.shared.", 11) == 0 && strcmp(title + 11, function->name) == 0)
                function->attribute[SHARED_BYTES] = bytes > RESERVED ? bytes - RESERVED : bytes;
        }
    return CUDA_SUCCESS;
}

static size_t image_size(const void *image)
{
    const Elf64_Ehdr *head = image;
    if (memcmp(image, ELFMAG, SELFMAG))
        return strlen(image) + 1;
    size_t size = head->e_shoff + (size_t)head->e_shnum * sizeof(Elf64_Shdr), programs = head->e_phoff + (size_t)head->e_phnum * sizeof(Elf64_Phdr);
    const Elf64_Shdr *sections = (const void *)((const char *)image + head->e_shoff);
    size = programs > size ? programs : size;
    for (int i = 0; i < head->e_shnum; i++)
        if (sections[i].sh_type != SHT_NOBITS && sections[i].sh_offset + sections[i].sh_size > size)
            size = sections[i].sh_offset + sections[i].sh_size;
    return size;
}

/* What variables take, of all devices: the hook charges them with the context. */
static uint64_t statics;
uint64_t fgpuSimStatics(void);
API uint64_t fgpuSimStatics(void) { return statics; }

static void unload(struct module *module)
{
    while (module->functions) {
        struct function *function = module->functions;
        module->functions = function->next;
        free(function->name);
        free(function);
    }
    while (module->globals) {
        struct global *global = module->globals;
        module->globals = global->next;
        if (global->address && !release_block(BLOCK_GLOBAL, global->address))
            statics -= global->bytes;
        free(global->name);
        free(global);
    }
    free(module->image);
    free(module);
}

static CUresult load(void **out, const void *image)
{
    NEED_INIT;
    if (!out || !image)
        return CUDA_INVALID_VALUE;
    bool elf = memcmp(image, ELFMAG, SELFMAG) == 0;
    if (!elf && !isspace(*(const unsigned char *)image) && *(const char *)image != '/' && *(const char *)image != '.')
        return INVALID_IMAGE; /* fat binaries, whose format is not public, too */
    struct module *module = zeroed(sizeof *module);
    size_t size = image_size(image);
    module->image = zeroed(size);
    memcpy(module->image, image, size);
    CUresult rc = elf ? read_elf(module) : read_ptx(module);
    if (rc)
        unload(module);
    else
        *out = module;
    return rc;
}

static CUresult load_file(void **out, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return NO_FILE;
    enum { STEP = 1 << 16 };
    size_t length = 0, got;
    char *text = grown(NULL, STEP);
    while ((got = fread(text + length, 1, STEP - 1, file)))
        text = grown(text, (length += got) + STEP);
    fclose(file);
    text[length] = 0;
    CUresult rc = length ? load(out, text) : INVALID_IMAGE;
    free(text);
    return rc;
}

API CUresult cuModuleLoadData(void **out, const void *image) { NEED_CONTEXT; return load(out, image); }
API CUresult cuModuleLoadDataEx(void **out, const void *image, unsigned n, int *options, void **values) { (void)n, (void)options, (void)values; NEED_CONTEXT; return load(out, image); }
API CUresult cuModuleLoad(void **out, const char *path) { NEED_CONTEXT; return load_file(out, path); }
API CUresult cuModuleLoadFatBinary(void **out, const void *image) { NEED_CONTEXT; return load(out, image); }
API CUresult cuModuleUnload(void *module)
{
    NEED_CONTEXT;
    if (!module)
        return BAD_HANDLE;
    unload(module);
    return CUDA_SUCCESS;
}
API CUresult cuModuleGetLoadingMode(int *out) { *out = 1; return CUDA_SUCCESS; } /* eager: all is there when it is loaded */

API CUresult cuModuleGetFunction(CUfunction *out, void *m, const char *name)
{
    NEED_INIT;
    if (!out || !m || !name)
        return m ? CUDA_INVALID_VALUE : BAD_HANDLE;
    for (struct function *function = ((struct module *)m)->functions; function; function = function->next)
        if (strcmp(function->name, name) == 0)
            return *out = function, CUDA_SUCCESS;
    return CUDA_NOT_FOUND;
}

/* A variable takes memory from when somebody asks where it is. */
API CUresult cuModuleGetGlobal_v2(CUdeviceptr *out, size_t *bytes, void *m, const char *name)
{
    NEED_CONTEXT;
    struct global *global = m ? ((struct module *)m)->globals : NULL;
    while (global && strcmp(global->name, name))
        global = global->next;
    if (!global)
        return m ? CUDA_NOT_FOUND : BAD_HANDLE;
    if (!global->address) {
        if (!sim_reserve(visible[current->device], global->bytes))
            return CUDA_OUT_OF_MEMORY;
        pthread_mutex_lock(&big);
        struct block *block = add_block(current->device, BLOCK_GLOBAL, global->bytes, 0);
        block->touched = true;
        global->address = block->address;
        statics += global->bytes;
        if (global->content)
            memcpy((void *)(uintptr_t)global->address, global->content, global->bytes);
        pthread_mutex_unlock(&big);
    }
    if (out)
        *out = global->address;
    if (bytes)
        *bytes = global->bytes;
    return CUDA_SUCCESS;
}

/* Libraries are modules of all contexts, and their kernels functions of each. */
API CUresult cuLibraryLoadData(void **out, const void *image, int *a, void **b, unsigned c, int *d, void **e, unsigned f) { (void)a, (void)b, (void)c, (void)d, (void)e, (void)f; return load(out, image); }
API CUresult cuLibraryLoadFromFile(void **out, const char *path, int *a, void **b, unsigned c, int *d, void **e, unsigned f) { (void)a, (void)b, (void)c, (void)d, (void)e, (void)f; NEED_INIT; return load_file(out, path); }
API CUresult cuLibraryUnload(void *library)
{
    NEED_INIT;
    if (!library)
        return BAD_HANDLE;
    unload(library);
    return CUDA_SUCCESS;
}
API CUresult cuLibraryGetKernel(CUfunction *out, void *library, const char *name) { return cuModuleGetFunction(out, library, name); }
API CUresult cuLibraryGetModule(void **out, void *library) { *out = library; return library ? CUDA_SUCCESS : BAD_HANDLE; }
API CUresult cuLibraryGetGlobal(CUdeviceptr *out, size_t *bytes, void *library, const char *name) { return cuModuleGetGlobal_v2(out, bytes, library, name); }
API CUresult cuLibraryGetKernelCount(unsigned *out, void *library)
{
    *out = 0;
    for (const struct function *at = library ? ((struct module *)library)->functions : NULL; at; at = at->next)
        ++*out;
    return library ? CUDA_SUCCESS : BAD_HANDLE;
}
API CUresult cuLibraryEnumerateKernels(CUfunction *out, unsigned n, void *library)
{
    struct function *at = library ? ((struct module *)library)->functions : NULL;
    for (unsigned i = 0; i < n && at; i++, at = at->next)
        out[i] = at;
    return library ? CUDA_SUCCESS : BAD_HANDLE;
}
API CUresult cuModuleGetFunctionCount(unsigned *out, void *module) { return cuLibraryGetKernelCount(out, module); }
API CUresult cuModuleEnumerateFunctions(CUfunction *out, unsigned n, void *module) { return cuLibraryEnumerateKernels(out, n, module); }
API CUresult cuKernelGetFunction(CUfunction *out, CUfunction kernel) { *out = kernel; return kernel ? CUDA_SUCCESS : BAD_HANDLE; }
API CUresult cuKernelGetLibrary(void **out, CUfunction kernel) { *out = kernel ? ((struct function *)kernel)->module : NULL; return kernel ? CUDA_SUCCESS : BAD_HANDLE; }
API CUresult cuFuncGetModule(void **out, CUfunction f) { return cuKernelGetLibrary(out, f); }
API CUresult cuFuncGetName(const char **out, CUfunction f) { *out = f ? ((struct function *)f)->name : NULL; return f ? CUDA_SUCCESS : BAD_HANDLE; }
API CUresult cuKernelGetName(const char **out, CUfunction kernel) { return cuFuncGetName(out, kernel); }
API CUresult cuFuncIsLoaded(int *out, CUfunction f) { *out = f != NULL; return f ? CUDA_SUCCESS : BAD_HANDLE; }
API CUresult cuFuncLoad(CUfunction f) { return f ? CUDA_SUCCESS : BAD_HANDLE; }

API CUresult cuFuncGetAttribute(int *out, int which, CUfunction f)
{
    if (!f || which < 0 || which >= ATTRIBUTES)
        return f ? CUDA_INVALID_VALUE : BAD_HANDLE;
    *out = ((struct function *)f)->attribute[which];
    return CUDA_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction f, int which, int value)
{
    enum { DYNAMIC_SHARED = 8, MOST_SHARED = 232448, CARVEOUT = 9 };
    if (!f || which < DYNAMIC_SHARED || which >= ATTRIBUTES || (which == DYNAMIC_SHARED && (value < 0 || value > MOST_SHARED)) || (which == CARVEOUT && value > 100))
        return f ? CUDA_INVALID_VALUE : BAD_HANDLE;
    ((struct function *)f)->attribute[which] = value;
    return CUDA_SUCCESS;
}
API CUresult cuKernelGetAttribute(int *out, int which, CUfunction kernel, CUdevice d) { NEED_DEVICE(d); return cuFuncGetAttribute(out, which, kernel); }
API CUresult cuKernelSetAttribute(int which, int value, CUfunction kernel, CUdevice d) { NEED_DEVICE(d); return cuFuncSetAttribute(kernel, which, value); }
API CUresult cuFuncSetCacheConfig(CUfunction f, int config) { return !f ? BAD_HANDLE : config < 0 || config > 3 ? CUDA_INVALID_VALUE : CUDA_SUCCESS; } /* a hint */
API CUresult cuKernelSetCacheConfig(CUfunction kernel, int config, CUdevice d) { NEED_DEVICE(d); return cuFuncSetCacheConfig(kernel, config); }

/* The interface of before CUDA 4: a function keeps its block and its parameters until it is launched. */
API CUresult cuFuncSetBlockShape(CUfunction f, int x, int y, int z)
{
    if (!f || x < 1 || y < 1 || z < 1 || (int64_t)x * y * z > 1024)
        return f ? CUDA_INVALID_VALUE : BAD_HANDLE;
    memcpy(((struct function *)f)->block, (const int[]){x, y, z}, sizeof((struct function *)f)->block);
    return CUDA_SUCCESS;
}
API CUresult cuFuncSetSharedSize(CUfunction f, unsigned bytes) { return !f ? BAD_HANDLE : bytes > 232448 ? CUDA_INVALID_VALUE : CUDA_SUCCESS; }
API CUresult cuParamSetv(CUfunction f, int at, const void *value, unsigned bytes)
{
    enum { ROOM = sizeof((struct function *)0)->params };
    if (!f || at < 0 || bytes > ROOM || at > (int)(ROOM - bytes))
        return f ? CUDA_INVALID_VALUE : BAD_HANDLE;
    memcpy(((struct function *)f)->params + at, value, bytes);
    return CUDA_SUCCESS;
}
API CUresult cuParamSeti(CUfunction f, int at, unsigned value) { return cuParamSetv(f, at, &value, sizeof value); }
API CUresult cuParamSetf(CUfunction f, int at, float value) { return cuParamSetv(f, at, &value, sizeof value); }
API CUresult cuParamSetSize(CUfunction f, unsigned bytes) { return !f ? BAD_HANDLE : bytes > 4096 ? CUDA_INVALID_VALUE : CUDA_SUCCESS; }

/* How many blocks an SM can hold, by its threads, registers and shared memory. */
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, CUfunction f, int threads, size_t shared, unsigned flags)
{
    enum { THREADS = 2048, REGISTER_FILE = 65536, BLOCKS = 32, SHARED = 233472, RESERVED = 1024 };
    NEED_CONTEXT;
    if (!f || threads <= 0 || flags > 1)
        return f ? CUDA_INVALID_VALUE : BAD_HANDLE;
    int warps = (threads + 31) / 32, registers = ((struct function *)f)->attribute[4];
    int blocks = THREADS / (warps * 32), by_registers = registers ? REGISTER_FILE / (warps * 32 * registers) : blocks, by_shared = (int)(SHARED / (shared + RESERVED));
    blocks = by_registers < blocks ? by_registers : blocks;
    blocks = by_shared < blocks ? by_shared : blocks;
    *out = threads > 1024 ? 0 : blocks < BLOCKS ? blocks : BLOCKS;
    return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction f, int threads, size_t shared) { return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, f, threads, shared, 0); }
API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction f, size_t (*need)(int), size_t shared, int limit, unsigned flags)
{
    CUresult rc = CUDA_SUCCESS;
    int best = 0, most = limit > 0 && limit < 1024 ? limit : 1024;
    for (int threads = most - most % 32; !rc && threads >= 32; threads -= 32) {
        int blocks = 0;
        rc = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, f, threads, need ? need(threads) : shared, flags);
        if (!rc && blocks * threads > best) {
            best = blocks * threads;
            *block = threads;
            *grid = blocks * sim_config.gpu[visible[current->device]].sms;
        }
    }
    return rc;
}
API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction f, size_t (*need)(int), size_t shared, int limit) { return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, f, need, shared, limit, 0); }
