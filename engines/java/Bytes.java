package tidegauge;

import java.io.OutputStream;
import java.util.Arrays;

/** Bytes that grow; for one thread, unlike ByteArrayOutputStream. */
final class Bytes extends OutputStream {
    private byte[] data;
    private int size;

    Bytes(int capacity) {
        data = new byte[capacity];
    }

    private void reserve(int more) {
        if (size + more > data.length) {
            data = Arrays.copyOf(data, Math.max(2 * data.length, size + more));
        }
    }

    @Override
    public void write(int one) {
        reserve(1);
        data[size++] = (byte) one;
    }

    @Override
    public void write(byte[] bytes) {
        write(bytes, 0, bytes.length);
    }

    @Override
    public void write(byte[] bytes, int from, int count) {
        reserve(count);
        System.arraycopy(bytes, from, data, size, count);
        size += count;
    }

    /** The lowest bytes of a number, lowest first. */
    void writeLow(long bits, int count) {
        reserve(count);
        for (var i = 0; i < count; i++) data[size++] = (byte) (bits >>> (8 * i));
    }

    void writeZigzag(long value) {
        var left = (value << 1) ^ (value >> 63);
        for (; (left & ~0x7fL) != 0; left >>>= 7) write((int) (left & 0x7f | 0x80));
        write((int) left);
    }

    byte[] toArray() {
        return Arrays.copyOf(data, size);
    }
}
