/* Memory of the simulated GPUs that several processes can hold, as by CUDA's handles for other processes. A file
 * descriptor that stands for it is an open file of its own with a lock on the object's byte: the lock ends with the last
 * copy of the descriptor, in whatever process. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "state.h"

static int probing = -1;

static const char *path_of(char path[static 4096], int object)
{
    const char *state = getenv("FGPU_SIM_STATE");
    int end = snprintf(path, 4096, "%s.objects", state && *state ? state : "/run/fgpu-sim/state");
    if (object >= 0)
        snprintf(path + end, (size_t)(4096 - end), ".%d", object);
    return path;
}

static int open_file(void)
{
    char path[4096];
    return open(path_of(path, -1), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

int sim_object_content(int object, uint64_t bytes)
{
    char path[4096];
    int file = open(path_of(path, object), O_RDWR | O_CLOEXEC | (bytes ? O_CREAT | O_TRUNC : 0), 0666);
    if (bytes && file >= 0) {
        sim_lock();
        sim->object[object].backed = 1;
        sim_unlock();
        if (ftruncate(file, (off_t)bytes)) {
            close(file);
            return -1;
        }
    }
    return file;
}

static struct flock byte_of(int object)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = object, .l_len = 1};
}

static bool is_described(int object)
{
    struct flock probe = byte_of(object);
    if (probing < 0)
        probing = open_file();
    return fcntl(probing, F_OFD_GETLK, &probe) == 0 && probe.l_type != F_UNLCK;
}

static bool is_held(const struct sim_object *object)
{
    uint64_t any = 0;
    for (int i = 0; i < SIM_PROCESSES / 64; i++)
        any |= object->holders[i];
    return any != 0;
}

void sim_objects_collect(void)
{
    for (int i = 0; i < SIM_OBJECTS; i++)
        if (sim->object[i].bytes && !is_held(&sim->object[i]) && !(sim->object[i].described && is_described(i))) {
            char path[4096];
            if (sim->object[i].backed)
                unlink(path_of(path, i));
            sim->object[i].bytes = 0;
        }
}

static uint64_t *word_of(struct sim_object *object, int process) { return &object->holders[process / 64]; }

int sim_object_new(int gpu, uint64_t bytes)
{
    int found = -1;
    sim_lock();
    sim_objects_collect();
    for (int i = 0; i < SIM_OBJECTS && found < 0; i++)
        if (!sim->object[i].bytes)
            found = i;
    if (found >= 0) {
        struct sim_object *object = &sim->object[found];
        *object = (struct sim_object){.bytes = bytes, .gpu = (uint32_t)sim_config.gpu[gpu].shared, .generation = object->generation + 1};
        *word_of(object, sim_me()) |= 1ull << sim_me() % 64;
        sim->process[sim_me()].used[object->gpu] -= bytes;
    }
    sim_unlock();
    return found;
}

bool sim_object_hold(int object, uint32_t generation)
{
    if (object < 0 || object >= SIM_OBJECTS)
        return false;
    sim_lock();
    sim_objects_collect();
    bool there = sim->object[object].bytes && (!generation || sim->object[object].generation == generation);
    if (there)
        *word_of(&sim->object[object], sim_me()) |= 1ull << sim_me() % 64;
    sim_unlock();
    return there;
}

static void drop(int object, int process)
{
    *word_of(&sim->object[object], process) &= ~(1ull << process % 64);
}

void sim_object_drop(int object)
{
    sim_lock();
    drop(object, sim_me());
    sim_objects_collect();
    sim_unlock();
}

void sim_object_forget(int process)
{
    for (int i = 0; i < SIM_OBJECTS; i++)
        drop(i, process);
}

int sim_object_describe(int object)
{
    struct flock hold = byte_of(object);
    int descriptor = open_file();
    if (descriptor < 0)
        return -1;
    /* several descriptors of one object share its lock */
    fcntl(descriptor, F_OFD_SETLK, &(struct flock){.l_type = F_RDLCK, .l_whence = hold.l_whence, .l_start = hold.l_start, .l_len = 1});
    lseek(descriptor, object, SEEK_SET);
    sim_lock();
    sim->object[object].described = 1;
    sim_unlock();
    return descriptor;
}

int sim_object_of(int descriptor) { return (int)lseek(descriptor, 0, SEEK_CUR); }
