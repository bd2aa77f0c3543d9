package tidegauge;

import java.io.ByteArrayInputStream;
import java.io.DataInput;
import java.io.DataInputStream;
import java.io.DataOutput;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/** A value of a state: a row, or a counted window. */
public abstract class Stored implements Serializable {
    private static final long serialVersionUID = 1;
    private static final int ROW = 0;
    private static final int WINDOW = 1;

    /** When the newest record that it is made of was appended. */
    abstract long appendedMs();

    abstract void write(DataOutput out) throws IOException;

    /** Java serialization. */
    private record Packed(byte[] bytes) implements Serializable {
        private Object readResolve() {
            return ofBytes(bytes);
        }
    }

    protected final Object writeReplace() {
        return new Packed(toBytes());
    }

    public final byte[] toBytes() {
        var bytes = new Bytes(256);
        bytes.write(this instanceof Row ? ROW : WINDOW);
        try {
            write(new DataOutputStream(bytes));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return bytes.toArray();
    }

    public static Stored ofBytes(byte[] bytes) {
        try (var in = new DataInputStream(new ByteArrayInputStream(bytes))) {
            return in.readByte() == ROW ? Row.read(in) : CountedWindow.read(in);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static void writeText(DataOutput out, String text) throws IOException {
        writeBytes(out, text.getBytes(StandardCharsets.UTF_8));
    }

    static void writeBytes(DataOutput out, byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    static String readText(DataInput in) throws IOException {
        return new String(readBytes(in), StandardCharsets.UTF_8);
    }

    static byte[] readBytes(DataInput in) throws IOException {
        var bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return bytes;
    }
}
